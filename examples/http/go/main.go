// A handler of messages in Go, of the standard library alone. Run it beside a worker:
//
//	HOST=127.0.0.1 PORT=8080 go run . &
//	headgate worker shop/emails --http http://127.0.0.1:8080/work
//
// The response decides about the message. 2xx: done. 429 or 503: retry after Retry-After. With the header
// Headgate-Reject: to the dead-letter queue at once. Any other response: retry after a backoff.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
)

type mail struct {
	To string `json:"to"`
}

type message struct {
	id         string
	attempt    int
	trace      string
	attributes map[string]any
}

var errGreylisted = errors.New("greylisted")

// A handler may get a message twice: keep this in your database in production.
var seen sync.Map

func send(to mail, about message) error {
	if _, twice := seen.Load(about.id); twice {
		return nil
	}
	if to.To == "busy@example.org" && about.attempt == 1 {
		return errGreylisted
	}
	seen.Store(about.id, true)
	line, _ := json.Marshal(map[string]any{
		"sent": to.To, "id": about.id, "attempt": about.attempt, "trace": about.trace, "attributes": about.attributes,
	})
	fmt.Println(string(line))
	return nil
}

func work(response http.ResponseWriter, request *http.Request) {
	about := message{
		id:         request.Header.Get("Headgate-Message-Id"),
		trace:      request.Header.Get("Traceparent"),
		attributes: map[string]any{},
	}
	about.attempt, _ = strconv.Atoi(request.Header.Get("Headgate-Attempt"))
	_ = json.Unmarshal([]byte(request.Header.Get("Headgate-Attributes")), &about.attributes)

	var to mail
	if err := json.NewDecoder(request.Body).Decode(&to); err != nil {
		response.Header().Set("Headgate-Reject", "not JSON")
		http.Error(response, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	switch err := send(to, about); {
	case err == nil:
		response.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errGreylisted):
		response.Header().Set("Retry-After", "1")
		http.Error(response, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(response, err.Error(), http.StatusInternalServerError)
	}
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	// Without HOST at all addresses: in a pod Kubernetes probes it from outside.
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("HOST"), port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"listening\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	http.HandleFunc("/work", work)
	log.Fatal(http.Serve(listener, nil))
}
