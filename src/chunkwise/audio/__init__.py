"""Samples and features: reading, resampling, log-mel filter banks, augmentation."""
