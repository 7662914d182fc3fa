module headgate.local/pause

go 1.21
