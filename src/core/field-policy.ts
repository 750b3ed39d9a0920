/** Decides which header fields of a client reach the app; `check` accepts only those that do for a route that is selected by a header. */
import { toFoldedName } from './head.ts';

/**
 * How a field that only a proxy should send is treated when a client sends it:
 * - `override`: it replaces the path, the method or the host that were checked, or controls the server. It is always removed.
 * - `identity`: it identifies the user or the calling workload. It is accepted only from `listen.trustedIdentityProxies`, and never on a
 *   route that authenticates users.
 * - `certificate`: it reports the client certificate. It is accepted only from `listen.trustedIdentityProxies`, and never on a route that
 *   requires a certificate.
 * - `unchecked`: it reports the location of the client, in a form that proxies pass on unchanged. It is accepted only from `listen.trustedIdentityProxies`.
 * - `clientAddress`: it is a single address. It is accepted from `listen.trustedProxies` if it equals the client address from X-Forwarded-For.
 * - `route`: it reports the port, prefix or protocol that the client used. It is accepted from `listen.trustedProxies`.
 */
type ProxyClaim = 'override' | 'identity' | 'certificate' | 'unchecked' | 'clientAddress' | 'route';

/**
 * What to do with a field of a client: `pass` forwards it as it was sent. Of the others, an assertion of a proxy is forwarded if the proxy is
 * trusted to make it; every other field is dropped, and the value says why.
 */
export type FieldAction =
  | 'pass'
  | 'hopByHop'
  | 'own'
  | 'rewritten'
  | 'trace'
  | 'foreignTrace'
  | 'withheld'
  | 'methodOverride'
  | 'otherSpelling'
  | 'checkedHere'
  | ProxyClaim;

/** The settings of a route that decide which fields its app receives. */
export interface FieldSettings {
  /** Forwards the client's credentials. sidegate acts as the app's origin server, so it may remove them (RFC 9110 §11.6.2). */
  readonly forwardAuthorization: boolean;
  /** `forward`: send the user to the app; `hide`: send no user; default: the route does not authenticate users. */
  readonly user?: 'forward' | 'hide';
  /** What to do with the client certificate; default: the route requires none. */
  readonly certificate?: 'forward' | 'hide';
  /** Forwards fields by which some apps change the method of the request. */
  readonly forwardMethodOverride?: boolean;
  /** Lower-case names of the fields that the signature is read from. */
  readonly signatureHeaders?: readonly string[];
  /** Clients that pass the gates are trusted with the traces of the app: fields of other tracing systems are forwarded, too. */
  readonly trustsTraces?: boolean;
}

/** Set by sidegate for each request, whichever proxy is in front of it; sidegate itself responds to Expect (RFC 9110 §10.1.1). */
const REWRITTEN = new Set(['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'via', 'content-length', 'expect']);

/** `name`: in lower case. */
export function decideFieldAction(name: string, settings: FieldSettings): FieldAction {
  const { signatureHeaders = [], trustsTraces = false, forwardAuthorization, forwardMethodOverride } = settings;
  const folded = toFoldedName(name);
  if (TRACE.has(folded)) return 'trace';
  // An untrusted client must not write into the app's traces, or cause everything to be recorded.
  if (isTraceField(folded) && !trustsTraces && !signatureHeaders.includes(name)) return 'foreignTrace';
  if (folded === 'authorization' && !forwardAuthorization) return 'withheld';
  if (isMethodOverride(folded) && forwardMethodOverride !== true) return 'methodOverride';
  if (HOP_BY_HOP.has(folded)) return 'hopByHop';
  if (REWRITTEN.has(folded)) return 'rewritten';
  if (isOwnField(folded)) return 'own';
  // Another spelling of a managed name: an app may treat it as the real field, and no legitimate client sends one.
  if (folded !== name && isProtectedField(folded)) return 'otherSpelling';
  if (signatureHeaders.some((signed) => signed !== name && toFoldedName(signed) === folded)) return 'otherSpelling';
  return decideClaim(findProxyClaim(folded) ?? findName(name, folded, settings), settings);
}

/** Where the gate itself names the user, no other field may seem to, unless it is part of the signature. */
function findName(
  name: string,
  folded: string,
  { user, certificate, signatureHeaders = [] }: FieldSettings,
): 'checkedHere' | undefined {
  if (user === undefined && certificate === undefined) return undefined;
  return mayNameUser(folded) && !signatureHeaders.includes(name) ? 'checkedHere' : undefined;
}

function decideClaim(claim: ProxyClaim | 'checkedHere' | undefined, { user, certificate }: FieldSettings): FieldAction {
  if (claim === undefined) return 'pass';
  // No proxy may contradict what the route checks itself.
  const isChecked = (claim === 'identity' && user !== undefined) || (claim === 'certificate' && certificate !== undefined);
  return isChecked ? 'checkedHere' : claim;
}

/** Whether the field belongs to sidegate, for folded names (core/head.ts). */
export function isOwnField(name: string): boolean {
  return name.startsWith(OWN_PREFIX);
}

/**
 * Finds what a field asserts that only a proxy may assert, for folded names (core/head.ts); undefined if clients may send the field.
 */
export function findProxyClaim(name: string): ProxyClaim | undefined {
  const claim = CLAIMS.get(name) ?? CLAIM_PREFIXES.find(([prefix]) => name.startsWith(prefix))?.[1];
  return claim === OF_CLIENT ? undefined : claim;
}

/** Whether the field changes the method of the request for some apps, for folded names (core/head.ts). */
export function isMethodOverride(name: string): boolean {
  return METHOD_OVERRIDES.has(name);
}

/** Whether the field carries a trace context, for folded names (core/head.ts). */
export function isTraceField(name: string): boolean {
  return TRACE_NAMES.has(name) || hasPrefix(name, TRACE_PREFIXES);
}

/**
 * Whether a client must neither duplicate the field in another spelling nor have it removed by Connection, for folded names
 * (core/head.ts).
 */
export function isProtectedField(name: string): boolean {
  return (
    TRUSTED_FIELDS.has(name) ||
    TRACE.has(name) ||
    isOwnField(name) ||
    findProxyClaim(name) !== undefined ||
    hasPrefix(name, SIGNED_PREFIXES)
  );
}

function hasPrefix(name: string, prefixes: readonly string[]): boolean {
  for (const prefix of prefixes) if (name.startsWith(prefix)) return true;
  return false;
}

/**
 * Whether the name suggests that the field names a user, for folded names (core/head.ts). Some clients and apps use such names on their
 * own, so this counts only where the gate itself names the user.
 */
function mayNameUser(name: string): boolean {
  if (USER_NAMES.has(name)) return true;
  const [prefix = '', ...rest] = name.split('-');
  return USER_PREFIXES.has(prefix) && name !== USER_AGENT && rest.some((word) => USER_WORDS.has(word));
}

// The names that these functions look up. All are folded (core/head.ts).

/** Hop-by-hop fields (RFC 9110 §7.6.1), in requests and responses. */
export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'proxy-authenticate',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** Fields with this prefix belong to sidegate, whichever proxy is in front of it. */
const OWN_PREFIX = 'sidegate-';
/** The fields that the signature is read from. */
const SIGNED_PREFIXES = ['webhook-', 'svix-'];

/** Clients may send the field, although its name begins like those that only proxies may send. */
const OF_CLIENT = 'client';

/** Prefixes of folded names (core/head.ts). If two match, the longer one is first. */
const CLAIM_PREFIXES: readonly (readonly [string, ProxyClaim])[] = [
  ['x-forwarded-client-', 'certificate'],
  ['x-forwarded-tls-', 'certificate'],
  ['x-forwarded-ssl-', 'certificate'],
  ['x-forwarded-uri', 'override'],
  ['x-forwarded-url', 'override'],
  ['x-forwarded-path', 'override'],
  ['x-forwarded-method', 'override'],
  ['x-forwarded-proto-', 'route'],
  ['x-forwarded-port-', 'route'],
  ['x-forwarded-prefix-', 'route'],
  // The `route` fields are listed below; any other may name a user: X-Forwarded-Login (SonarQube), X-Forwarded-Uuid (Rundeck).
  ['x-forwarded-', 'identity'],
  ['x-envoy-original-', 'override'],
  ['x-envoy-', 'route'],
  ['x-original-', 'override'],
  ['x-rewrite-', 'override'],
  // Daphne, repoze.vhm (Pyramid, Zope) and Plack take the app's mount point from them; Lucee its path and files.
  ['daphne-root-', 'override'],
  ['x-vhm-', 'override'],
  ['x-traversal-path', 'override'],
  ['xajp-', 'override'],
  ['x-tomcat-', 'override'],
  // Next.js trusts its own fields: CVE-2025-29927. Browsers send one of them, listed below.
  ['x-middleware-', 'override'],
  ['x-invoke-', 'override'],
  ['x-matched-path', 'override'],
  ['x-now-route-', 'override'],
  ['x-astro-', 'override'],
  // By default, IBM WebSphere accepts $WSRU (user), $WSCC (certificate) and other fields of its plug-in from any client.
  ['-ws', 'override'],
  ['x-accel-', 'override'],
  ['x-sendfile', 'override'],
  // oauth2-proxy, Authelia, Authentik, Pomerium, Vouch, Traefik, Kong, Tyk and mod_auth_openidc.
  ['x-auth-request-', 'identity'],
  ['remote-', 'identity'],
  ['x-authentik-', 'identity'],
  ['x-pomerium-', 'identity'],
  ['x-vouch-', 'identity'],
  ['x-consumer-', 'identity'],
  ['x-credential-', 'identity'],
  // Grafana and Gitea; Home Assistant; LemonLDAP::NG; Louketo; OpenSearch; Apache NiFi; Kubeflow; Sandstorm; WSO2.
  ['x-webauth-', 'identity'],
  ['x-remote-user-', 'identity'],
  ['auth-user', 'identity'],
  ['auth-mail', 'identity'],
  ['auth-group', 'identity'],
  ['x-auth-user', 'identity'],
  ['x-auth-subject', 'identity'],
  ['x-proxy-user', 'identity'],
  ['x-proxy-role', 'identity'],
  ['x-proxiedentit', 'identity'],
  ['kubeflow-user', 'identity'],
  ['x-sandstorm-', 'identity'],
  ['x-jwt-assertion', 'identity'],
  ['x-authenticated-', 'identity'],
  ['oidc-', 'identity'],
  ['mellon-', 'identity'],
  ['shib-', 'identity'],
  // Tailscale, Cloudflare Access, Google, Azure, AWS, IBM, Oracle, CA and Teleport.
  ['tailscale-', 'identity'],
  ['cf-access-', 'identity'],
  ['x-goog-authenticated-user-', 'identity'],
  ['x-goog-iap-', 'identity'],
  ['x-appengine-user-', 'identity'],
  ['x-ms-client-principal', 'identity'],
  ['x-ms-token-', 'identity'],
  ['x-amzn-oidc-', 'identity'],
  ['x-amzn-mtls-', 'certificate'],
  ['x-amzn-lattice-', 'identity'],
  ['proxy-remote-', 'identity'],
  ['wl-path-', 'override'],
  ['x-ms-original-', 'override'],
  ['x-waws-unencoded-', 'override'],
  ['x-amzn-request-context', 'identity'],
  ['x-amzn-lambda-context', 'identity'],
  ['iv-', 'identity'],
  ['oam-', 'identity'],
  ['osso-', 'identity'],
  ['sm-', 'identity'],
  ['teleport-', 'identity'],
  // The authenticating proxy and impersonation of Kubernetes; Linkerd and Dapr.
  ['x-remote-extra-', 'identity'],
  ['impersonate-', 'identity'],
  ['l5d-', 'identity'],
  ['dapr-caller-', 'identity'],
  // geOrchestra, Istio, CAS, and proxies for single sign-on.
  ['sec-user', 'identity'],
  ['sec-role', 'identity'],
  ['sec-istio-auth-', 'identity'],
  ['cas-', 'identity'],
  ['x-sso-', 'identity'],
  ['x-proxy-remote-', 'identity'],
  ['x-jwt-payload', 'identity'],
  // Client certificates as TLS terminators write them.
  ['x-ssl-', 'certificate'],
  ['ssl-client-', 'certificate'],
  ['x-client-cert', 'certificate'],
  ['x-tls-client-', 'certificate'],
  // Puppet Server.
  ['x-client-dn', 'certificate'],
  ['x-client-verify', 'certificate'],
  ['wl-proxy-client-cert', 'certificate'],
  ['sslclientcert', 'certificate'],
  ['cf-client-cert', 'certificate'],
  ['client-cert', 'certificate'],
  ['x-arr-clientcert', 'certificate'],
];

/**
 * The variables of CGI (RFC 3875 §4.1), FastCGI, WSGI and Tomcat. gunicorn takes SCRIPT_NAME and PATH_INFO from the header of a peer on
 * loopback, which sidegate is, and cuts the first off the path.
 */
const CGI_VARIABLES = [
  ...['auth-type', 'gateway-interface', 'path-info', 'path-translated', 'query-string', 'request-method', 'script-name'],
  ...['server-name', 'server-port', 'server-protocol', 'server-software', 'document-root', 'document-uri', 'request-uri'],
  ...['script-filename', 'script-url', 'script-uri', 'context-path', 'root-path', 'base-path', 'base-url', 'servlet-path'],
];

/** The same for complete names. */
const CLAIMS: ReadonlyMap<string, ProxyClaim | typeof OF_CLIENT> = new Map([
  // Next.js's pages send it when they prefetch, and it selects neither path nor method.
  ...toClaims(OF_CLIENT, ['x-middleware-prefetch']),
  ...toClaims('override', [
    // PHP, Python and others read it as the variable HTTP_PROXY: CVE-2016-5385.
    'proxy',
    'x-host',
    'x-real-host',
    'x-http-destinationurl',
    'x-http-host-override',
    'x-http-path-override',
    'x-override-url',
    'dapr-app-id',
    ...CGI_VARIABLES.flatMap((name) => [name, `x-${name}`]),
  ]),
  ...toClaims('identity', [
    'x-remote-user',
    'x-remote-group',
    'x-remote-groups',
    'x-remote-email',
    'x-remote-name',
    'x-remote-uid',
    'x-auth-email',
    'x-auth-groups',
    'x-auth-roles',
    'x-auth-role',
    'x-auth-id',
    'x-auth-name',
    'x-apigateway-event',
    'x-amzn-apigateway-event',
    'x-userinfo',
    'x-user-info',
    'x-anonymous-consumer',
    'x-apigateway-api-userinfo',
    'x-endpoint-api-userinfo',
    'x-appengine-inbound-appid',
    'smuser',
    'http-sm-user',
  ]),
  ...toClaims('unchecked', ['forwarded', 'forwarded-for', 'x-forwarded', 'x-forward-for', 'x-azure-socketip', 'cf-pseudo-ipv4']),
  ...toClaims('clientAddress', [
    'x-real-ip',
    'x-remote-ip',
    'x-remote-addr',
    'remote-addr',
    'x-client-ip',
    'x-cluster-client-ip',
    'x-originating-ip',
    'x-proxyuser-ip',
    'x-appengine-user-ip',
    'x-azure-clientip',
    'x-envoy-external-address',
    'x-original-forwarded-for',
    'x-forwarded-client-ip',
    'true-client-ip',
    'client-ip',
    'proxy-client-ip',
    'wl-proxy-client-ip',
    'cf-connecting-ip',
    'cf-connecting-ipv6',
    'fastly-client-ip',
    'fly-client-ip',
    'do-connecting-ip',
    'cloudfront-viewer-address',
    'x-vercel-forwarded-for',
    'x-vercel-proxied-for',
    'x-nf-client-connection-ip',
    'x-sucuri-clientip',
    'incap-client-ip',
  ]),
  ...toClaims(
    'route',
    ['by', 'context', 'for', 'host', 'https', 'port', 'prefix', 'proto', 'protocol', 'scheme', 'server', 'ssl'].map(
      (end) => `x-forwarded-${end}`,
    ),
  ),
  // Jetty and GlassFish, from Sun's proxies.
  ...toClaims('certificate', ['proxy-auth-cert', 'proxy-keysize', 'proxy-ssl-id']),
  ...toClaims('clientAddress', ['proxy-ip']),
  ...toClaims('route', [
    'x-proxied-https',
    'wl-proxy-ssl',
    'x-real-port',
    'cf-visitor',
    'fastly-ssl',
    'x-scheme',
    'x-url-scheme',
    'front-end-https',
    'x-arr-ssl',
  ]),
]);

function toClaims<T extends string>(claim: T, names: readonly string[]): [string, T][] {
  return names.map((name) => [name, claim]);
}

/** Some frameworks take the method from these fields, so the method that was checked would not be the one that is executed. */
const METHOD_OVERRIDES = new Set(['x-http-method-override', 'x-http-method', 'x-method-override']);

/** The trace context of a request (W3C Trace Context). */
export const TRACE: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

/** The fields of the standard, and those of older tracing systems. */
const TRACE_NAMES = new Set([
  ...TRACE,
  'baggage',
  'b3',
  'uber-trace-id',
  'jaeger-baggage',
  'jaeger-debug-id',
  'sentry-trace',
  'x-cloud-trace-context',
  'grpc-trace-bin',
  'x-amzn-trace-id',
  'newrelic',
  'elastic-apm-traceparent',
  'x-ot-span-context',
]);
const TRACE_PREFIXES = ['x-b3-', 'x-datadog-', 'uberctx-', 'ot-tracer-', 'ot-baggage-'];

/** Other fields that sidegate or the app rely on. */
const TRUSTED_FIELDS = new Set([
  'host',
  'content-length',
  'content-type',
  'content-encoding',
  'transfer-encoding',
  'authorization',
  'cookie',
  'via',
]);

/** The first words of the names that proxies give to their fields. */
const USER_PREFIXES = words('x remote sec cas http auth proxy gateway sso jwt grpc');
/** Words by which a field may name a user. */
const USER_WORDS = words('user username userid uid userinfo identity email group groups role roles principal subject login');
const USER_NAMES = words('user username userid user-id user-name uid email x-id-token x-access-token');
/** gRPC-Web sets it, because browsers do not let pages set User-Agent. */
const USER_AGENT = 'x-user-agent';

function words(text: string): ReadonlySet<string> {
  return new Set(text.split(' '));
}
