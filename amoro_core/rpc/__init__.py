"""The gRPC services: decode the request, call the service, encode the answer."""
