"""The operator: resources in, tables, Deployments, CronJobs and SparkApplications out."""
