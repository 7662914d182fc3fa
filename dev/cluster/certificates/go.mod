module penstock.local/certificates

go 1.21
