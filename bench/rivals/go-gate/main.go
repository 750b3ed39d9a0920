// A rival of the benchmark: what a Go team would write with the standard library's reverse proxy, the library of Standard Webhooks
// and go-redis. With -authz it only decides, for Envoy's ext_authz filter.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	path      = "/hooks/billing"
	maxBody   = 1 << 20
	lease     = 60 * time.Second
	retention = 3 * 24 * time.Hour
	pending   = "pending"
	done      = "done"
)

type gate struct {
	webhook *standardwebhooks.Webhook
	store   *redis.Client
	log     *slog.Logger
	next    http.Handler
}

type idKey struct{}

func main() {
	listen := flag.String("listen", "", "address")
	redisAddress := flag.String("redis", "", "address of Redis")
	app := flag.String("app", "", "URL of the app")
	logFile := flag.String("log", "", "file for one line per request")
	isAuthz := flag.Bool("authz", false, "answer without forwarding")
	flag.Parse()

	webhook, err := standardwebhooks.NewWebhook(os.Getenv("BENCH_SECRET"))
	if err != nil {
		log.Fatal(err)
	}
	out, err := os.OpenFile(*logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	lines := &lockedWriter{out: bufio.NewWriterSize(out, 64<<10)}
	go func() {
		for range time.Tick(time.Second) {
			lines.flush()
		}
	}()
	gate := &gate{
		webhook: webhook,
		store:   redis.NewClient(&redis.Options{Addr: *redisAddress}),
		log:     slog.New(slog.NewJSONHandler(lines, nil)),
	}
	if !*isAuthz {
		gate.next = gate.proxyTo(*app)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, gate.handle)
	server := &http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		server.Close()
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	lines.flush()
}

// Verifies, claims the ID, and forwards; a response of 2xx confirms the claim, any other releases it.
func (g *gate) handle(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	id := r.Header.Get("webhook-id")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		g.finish(w, r, started, id, http.StatusRequestEntityTooLarge)
		return
	}
	if g.webhook.Verify(body, r.Header) != nil {
		g.finish(w, r, started, "", http.StatusUnauthorized)
		return
	}
	isNew, err := g.store.SetNX(r.Context(), "go:"+id, pending, lease).Result()
	if err != nil {
		g.finish(w, r, started, id, http.StatusServiceUnavailable)
		return
	}
	if !isNew {
		g.finish(w, r, started, id, g.statusOfDuplicate(r.Context(), id))
		return
	}
	if g.next == nil {
		g.finish(w, r, started, id, http.StatusOK)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	recorder := &recorder{ResponseWriter: w, status: http.StatusOK}
	g.next.ServeHTTP(recorder, r.WithContext(context.WithValue(r.Context(), idKey{}, id)))
	g.write(r, started, id, recorder.status)
}

func (g *gate) statusOfDuplicate(ctx context.Context, id string) int {
	state, err := g.store.Get(ctx, "go:"+id).Result()
	if err == nil && state == done {
		return http.StatusOK
	}
	return http.StatusConflict
}

func (g *gate) proxyTo(app string) http.Handler {
	target, err := url.Parse(app)
	if err != nil {
		log.Fatal(err)
	}
	settle := func(ctx context.Context, isHandled bool) {
		id, _ := ctx.Value(idKey{}).(string)
		// The client may have gone.
		store, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if isHandled {
			g.store.Set(store, "go:"+id, done, retention)
		} else {
			g.store.Del(store, "go:"+id)
		}
	}
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.SetXForwarded()
			p.Out.Header.Set("Sidegate-Route", "billing")
		},
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
			MaxIdleConnsPerHost: 256,
			DisableCompression:  true,
		},
		ModifyResponse: func(response *http.Response) error {
			settle(response.Request.Context(), response.StatusCode/100 == 2)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			settle(r.Context(), false)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

func (g *gate) finish(w http.ResponseWriter, r *http.Request, started time.Time, id string, status int) {
	w.WriteHeader(status)
	g.write(r, started, id, status)
}

func (g *gate) write(r *http.Request, started time.Time, id string, status int) {
	g.log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", status), slog.String("webhookId", id), slog.String("client", r.RemoteAddr),
		slog.Duration("duration", time.Since(started)))
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

type lockedWriter struct {
	mutex sync.Mutex
	out   *bufio.Writer
}

func (l *lockedWriter) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.out.Write(line)
}

func (l *lockedWriter) flush() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.out.Flush()
}
