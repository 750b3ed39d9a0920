// Serves the routes of test/support/frameworks/framework.ts with a router of Go, named by the first argument.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
)

func answer(handler string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = json.NewEncoder(w).Encode(map[string]string{"handler": handler, "path": r.URL.Path, "method": r.Method, "host": r.Host})
	}
}

func serveMux() http.Handler {
	router := http.NewServeMux()
	router.Handle("/admin", answer("admin"))
	router.Handle("/admin/", answer("admin"))
	router.Handle("/hooks/billing", answer("billing"))
	router.Handle("/account", answer("account"))
	router.Handle("/", answer("open"))
	return router
}

func chiRouter() http.Handler {
	router := chi.NewRouter()
	router.Handle("/admin", answer("admin"))
	router.Handle("/admin/*", answer("admin"))
	router.Handle("/hooks/billing", answer("billing"))
	router.Handle("/account", answer("account"))
	router.Handle("/*", answer("open"))
	return router
}

func gorillaRouter() http.Handler {
	router := mux.NewRouter()
	router.PathPrefix("/admin/").Handler(answer("admin"))
	router.Handle("/admin", answer("admin"))
	router.Handle("/hooks/billing", answer("billing"))
	router.Handle("/account", answer("account"))
	router.PathPrefix("/").Handler(answer("open"))
	return router
}

func ginRouter() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Any("/admin", gin.WrapF(answer("admin")))
	router.Any("/admin/*rest", gin.WrapF(answer("admin")))
	router.Any("/hooks/billing", gin.WrapF(answer("billing")))
	router.Any("/account", gin.WrapF(answer("account")))
	router.NoRoute(gin.WrapF(answer("open")))
	return router
}

var routers = map[string]struct {
	module string
	make   func() http.Handler
}{
	"go":      {"", serveMux},
	"chi":     {"github.com/go-chi/chi/v5", chiRouter},
	"gorilla": {"github.com/gorilla/mux", gorillaRouter},
	"gin":     {"github.com/gin-gonic/gin", ginRouter},
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	if module == "" {
		return info.GoVersion
	}
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "unknown"
}

func main() {
	router, known := routers[os.Args[1]]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown router", os.Args[1])
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("listening %d %s\n", listener.Addr().(*net.TCPAddr).Port, version(router.module))
	panic(http.Serve(listener, router.make()))
}
