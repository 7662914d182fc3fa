"""Values that people write as text: units, cron, names; and the shape that each must have."""
