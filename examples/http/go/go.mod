module example.org/penstock-handler

go 1.21
