// Prints when schedules are next due, by the library that Kubernetes' CronJob controller reads them with.
//
// Each line of the input is a start (RFC 3339, UTC), a tab and a schedule. Each line of the output is the next time,
// or "never" where the library finds none within its five years.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		start, schedule, _ := strings.Cut(lines.Text(), "\t")
		next, err := nextTime(start, schedule)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", lines.Text(), err)
			os.Exit(1)
		}
		fmt.Println(next)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func nextTime(start, schedule string) (string, error) {
	from, err := time.Parse(time.RFC3339, start)
	if err != nil {
		return "", err
	}
	read, err := cron.ParseStandard(schedule)
	if err != nil {
		return "", err
	}
	next := read.Next(from.UTC())
	if next.IsZero() {
		return "never", nil
	}
	return next.Format(time.RFC3339), nil
}
