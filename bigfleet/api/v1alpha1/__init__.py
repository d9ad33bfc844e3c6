"""Generated from the .proto files beside this module (`make stubs`)."""
