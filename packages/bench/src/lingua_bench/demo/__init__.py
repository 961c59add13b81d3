"""Short stories on a real store for people who are new here: lingua demo."""
