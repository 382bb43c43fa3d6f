// The functions without a body in this package are the runtime's.
