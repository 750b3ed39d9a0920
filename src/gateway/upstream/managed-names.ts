/** Which header fields are not the client's to set: of one hop only, ours, or what proxies say of a client. */

/** Of one hop only (RFC 9110 §7.6.1), on requests and answers alike. */
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

/** Whatever begins so is ours, whoever stands before us. */
const OWN_PREFIX = 'sidegate-';
/** What the signature is read from. */
const SIGNED_PREFIXES = ['webhook-', 'svix-'];

/**
 * How a field that speaks for a proxy is treated when a client sends it:
 * - `override`: it replaces the path, the method or the host that were checked, or steers the server. It never passes.
 * - `identity`: it says who the user or the calling workload is. It passes only from `listen.trustedIdentityProxies`, and never on a
 *   route that authenticates users itself.
 * - `certificate`: it says which certificate the client showed. The same, and never on a route that asks for a certificate itself.
 * - `unchecked`: it says where the client is, in a form that proxies pass on unchanged. It passes only from `listen.trustedIdentityProxies`.
 * - `clientAddress`: it is one address. It passes from `listen.trustedProxies` if it is the address that X-Forwarded-For led to.
 * - `route`: it says by which port, prefix or protocol the client came. It passes from `listen.trustedProxies`.
 */
export type ProxyClaim = 'override' | 'identity' | 'certificate' | 'unchecked' | 'clientAddress' | 'route';

/** Longest prefix first where two match. For folded names (core/headers.ts). */
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
  // Those of a route are listed below; any other may name a user: X-Forwarded-Login (SonarQube), X-Forwarded-Uuid (Rundeck).
  ['x-forwarded-', 'identity'],
  ['x-envoy-original-', 'override'],
  ['x-envoy-', 'route'],
  ['x-original-', 'override'],
  ['x-rewrite-', 'override'],
  // Next.js trusts these of its own: CVE-2025-29927.
  ['x-middleware-', 'override'],
  ['x-invoke-', 'override'],
  ['x-matched-path', 'override'],
  ['x-now-route-', 'override'],
  ['x-astro-', 'override'],
  // IBM WebSphere takes $WSRU (user), $WSCC (certificate) and others of its plug-in from any client by default.
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
  ['x-amzn-request-context', 'identity'],
  ['x-amzn-lambda-context', 'identity'],
  ['iv-', 'identity'],
  ['oam-', 'identity'],
  ['osso-', 'identity'],
  ['sm-', 'identity'],
  ['teleport-', 'identity'],
  // Kubernetes' authenticating proxy and impersonation; Linkerd and Dapr.
  ['x-remote-extra-', 'identity'],
  ['impersonate-', 'identity'],
  ['l5d-', 'identity'],
  ['dapr-caller-', 'identity'],
  // Client certificates as TLS terminators write them.
  ['x-ssl-', 'certificate'],
  ['ssl-client-', 'certificate'],
  ['x-client-cert', 'certificate'],
  // Puppet Server.
  ['x-client-dn', 'certificate'],
  ['x-client-verify', 'certificate'],
  ['wl-proxy-client-cert', 'certificate'],
  ['cf-client-cert', 'certificate'],
  ['client-cert', 'certificate'],
  ['x-arr-clientcert', 'certificate'],
];

/** The same, by whole names. */
const CLAIMS: ReadonlyMap<string, ProxyClaim> = new Map([
  ...toClaims('override', [
    // PHP, Python and others read it as the variable HTTP_PROXY: CVE-2016-5385.
    'proxy',
    'x-host',
    'x-http-host-override',
    'x-script-name',
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
  ]),
  ...toClaims(
    'route',
    ['by', 'context', 'for', 'host', 'https', 'port', 'prefix', 'proto', 'protocol', 'scheme', 'server', 'ssl'].map(
      (end) => `x-forwarded-${end}`,
    ),
  ),
  ...toClaims('route', ['x-real-port', 'cf-visitor', 'fastly-ssl', 'x-scheme', 'x-url-scheme', 'front-end-https', 'x-arr-ssl']),
]);

function toClaims(claim: ProxyClaim, names: readonly string[]): [string, ProxyClaim][] {
  return names.map((name) => [name, claim]);
}

/** Some frameworks take a request for one of another method because of these, so the method that was checked would not be the one that counts. */
const METHOD_OVERRIDES = new Set(['x-http-method-override', 'x-http-method', 'x-method-override']);

/** The trace that a request is part of (W3C Trace Context). */
export const TRACE: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

/** Further fields that the gate or the app relies on. */
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

/** Ours, for folded names (core/headers.ts). */
export function isOwnField(name: string): boolean {
  return name.startsWith(OWN_PREFIX);
}

/** What a field claims that only a proxy may say, for folded names (core/headers.ts); undefined for a field that clients may send. */
export function findProxyClaim(name: string): ProxyClaim | undefined {
  return CLAIMS.get(name) ?? CLAIM_PREFIXES.find(([prefix]) => name.startsWith(prefix))?.[1];
}

/** A field that changes the request's method for some apps, for folded names (core/headers.ts). */
export function isMethodOverride(name: string): boolean {
  return METHOD_OVERRIDES.has(name);
}

/** A field that nobody may double under another spelling, nor have removed on the way, for folded names (core/headers.ts). */
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
