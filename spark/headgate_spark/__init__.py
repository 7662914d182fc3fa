"""The Spark side: a data source and the bulk jobs."""
