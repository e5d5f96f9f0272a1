"""Studies: what the papers simulate and draw that is no table of models. One file a study; it registers by existing."""
