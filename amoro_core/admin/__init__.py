"""The operations for people and their tools, each defined once; gRPC, and whatever comes beside it, only translates."""
