"""The numbers of a study: readings, statistics, matching, findings and claims."""
