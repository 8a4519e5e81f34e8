import os

# Read when gRPC is loaded: what it says of a fake that went away is no output of the command line.
os.environ["GRPC_VERBOSITY"] = "NONE"
