"""The admin operations, each defined once; gRPC and any further transport only translate."""
