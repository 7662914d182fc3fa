// The process that holds a pod's namespaces open: it waits, buries orphans, and ends when it is asked to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		bury()
	}
}

// bury collects every child that has ended; one signal may stand for many.
func bury() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			return
		}
	}
}
