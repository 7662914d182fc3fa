module headgate.local/certificates

go 1.21
