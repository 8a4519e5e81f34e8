"""gRPC: translate, call, translate back."""
