// An app that receives Standard Webhooks, and verifies none of them: sidegate does.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
)

type event struct {
	Type string `json:"type"`
}

func main() {
	http.HandleFunc("/hooks/billing", func(w http.ResponseWriter, r *http.Request) {
		var received event
		if err := json.NewDecoder(r.Body).Decode(&received); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Println(r.Header.Get("Webhook-Id"), received.Type)
		fmt.Fprintln(w, "handled")
	})
	// Loopback only: otherwise clients could reach the app without sidegate.
	listener, err := net.Listen("tcp", "127.0.0.1:3000")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("app is ready")
	log.Fatal(http.Serve(listener, nil))
}
