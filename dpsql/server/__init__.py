"""What `dpsql serve` runs: one policy over one data set, asked by many analysts over the network."""
