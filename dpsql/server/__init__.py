"""Server of `dpsql serve`: one policy over one data set, for many analysts over the network."""
