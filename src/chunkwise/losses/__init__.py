"""What training minimises: transducer losses, pruned and full, and the auxiliary CTC loss."""
