"""Plans a study, starts its workers and watches them."""
