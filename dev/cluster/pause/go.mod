module penstock.local/pause

go 1.21
