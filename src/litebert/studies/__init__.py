"""Small grids over recipes, each writing one report."""
