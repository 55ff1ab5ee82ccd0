"""Who trains, and with what: engines, objectives, models and samplers."""
