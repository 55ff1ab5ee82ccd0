"""What was found in a study: functions of its `readings.Source`, each of which finds its answer
once.
"""
