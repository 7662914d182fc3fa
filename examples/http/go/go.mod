module example.org/headgate-handler

go 1.21
