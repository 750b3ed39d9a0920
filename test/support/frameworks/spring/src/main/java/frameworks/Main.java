package frameworks;

import jakarta.servlet.http.HttpServletRequest;
import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.servlet.context.ServletWebServerInitializedEvent;
import org.springframework.context.event.EventListener;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves the routes of test/support/frameworks/framework.ts with Spring MVC on Tomcat. */
@SpringBootApplication
@RestController
public class Main {
  public static void main(String[] args) {
    SpringApplication app = new SpringApplication(Main.class);
    app.setLogStartupInfo(false);
    app.run("--server.port=0", "--server.address=127.0.0.1", "--spring.main.banner-mode=off", "--logging.level.root=error");
  }

  @EventListener
  public void onListening(ServletWebServerInitializedEvent event) {
    System.out.println("listening " + event.getWebServer().getPort() + " " + SpringBootVersion.getVersion());
  }

  private static Map<String, String> answer(String handler, HttpServletRequest request) {
    return Map.of(
        "handler", handler, "path", request.getServletPath(), "method", request.getMethod(), "host", request.getHeader("Host"));
  }

  @RequestMapping({"/admin", "/admin/**"})
  public Map<String, String> admin(HttpServletRequest request) {
    return answer("admin", request);
  }

  @RequestMapping("/hooks/billing")
  public Map<String, String> billing(HttpServletRequest request) {
    return answer("billing", request);
  }

  @RequestMapping("/account")
  public Map<String, String> account(HttpServletRequest request) {
    return answer("account", request);
  }

  @RequestMapping("/**")
  public Map<String, String> open(HttpServletRequest request) {
    return answer("open", request);
  }
}
