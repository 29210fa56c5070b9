"""What commands share: parameters, clusters and their configuration, tables and texts."""
