/** Certificates and other URLs that senders put into messages: fetched once, cached while valid, and rate-limited. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { toClientNetwork, toSite } from '../../core/ip-address.ts';
import { type HttpsGet, RemoteFailure } from './https-get.ts';

/** A key of a certificate. */
export interface CertificateKey {
  readonly key: KeyObject;
  /** Keeps the key in the cache: call it once the key has verified a signature. */
  readonly onVerified: () => void;
}

interface CachedCertificate {
  readonly certificate: X509Certificate;
  readonly key: KeyObject;
  readonly validTo: EpochMilliseconds;
  /** Fetched again from then on. */
  readonly until: Milliseconds;
}

type CertificateCache = Map<string, CachedCertificate>;

/** A fetch in progress, or one that failed recently. */
interface CertificateFetch {
  readonly fetched: Promise<CachedCertificate>;
  readonly until: Milliseconds;
}

const MAX_CERTIFICATE_BYTES = 16_384;
const MAX_RESPONSE_BYTES = 65_536;
const TIMEOUT_MS: Milliseconds = 5_000;
const DAY_MS: Milliseconds = 86_400_000;
/** A failure is cached for longer than a fetch takes, so that a flood of messages does not cause a flood of fetches. */
const FAILURE_MS: Milliseconds = 10_000;
/** In each of the caches. */
const MAX_CACHED = 16;
const MAX_FETCHES_PER_MINUTE = 100;
/** A client gets a fetch if it had less than this share of those that are left in the minute; one alone gets ten of a hundred. */
const CLIENT_SHARE = 1 / 10;
const MINUTE_MS: Milliseconds = 60_000;

/** Caches the keys of certificates. */
export class RemoteCertificates {
  readonly #get: HttpsGet;
  readonly #clock: Clock;
  /** Those whose keys verified a signature. Oldest first, as in `#unproven`. */
  readonly #proven: CertificateCache = new Map();
  /** Separate from `#proven`: anyone can send URLs of other certificates of the sender, and those must not evict the ones that it uses. */
  readonly #unproven: CertificateCache = new Map();
  /** Separate from both: anyone can send URLs that fail, and those must not evict valid keys. */
  readonly #attempts = new Map<string, CertificateFetch>();
  readonly #newUrls = new Budget();
  readonly #followed = new Budget();

  constructor(get: HttpsGet, clock: Clock) {
    this.#get = get;
    this.#clock = clock;
  }

  /**
   * The key of the certificate at `url`, which must have one of the names, if any are given. The caller must have checked the host.
   * `client` is the address of the client that sent the URL. Rejects with RemoteFailure.
   */
  async key(url: URL, client: string, names?: readonly string[]): Promise<CertificateKey> {
    const cached = await this.#find(url, client);
    if (names !== undefined && !names.some((name) => hasName(cached.certificate, name)))
      throw new RemoteFailure(`${url.host}: the certificate has another name than ${names.join(' or ')}`);
    return { key: cached.key, onVerified: () => this.#prove(url, cached) };
  }

  async #find(url: URL, client: string): Promise<CachedCertificate> {
    // Not the wall clock: if it is set back, a failure or a fetch would count as recent for that long.
    const now = this.#clock.monotonic();
    const cached = this.#proven.get(url.href) ?? this.#unproven.get(url.href);
    if (cached !== undefined && now < cached.until && this.#clock.now() < cached.validTo) return cached;
    for (const [href, { until }] of this.#attempts) if (now >= until) this.#attempts.delete(href);
    const attempt = this.#attempts.get(url.href);
    if (attempt !== undefined) return attempt.fetched;
    // Attackers can send new URLs at will, and must not use up the budget of a URL that was valid: that one is fetched once per FAILURE_MS.
    if (cached === undefined) this.#newUrls.spend(now, url, client);
    const fetched = this.#fetchAndCache(url, now);
    this.#attempts.set(url.href, { fetched, until: now + FAILURE_MS });
    return fetched;
  }

  /** Requests a URL that the sender wants to be called. The caller must have checked the host. Rejects with RemoteFailure. */
  async follow(url: URL, client: string): Promise<void> {
    this.#followed.spend(this.#clock.monotonic(), url, client);
    await this.#get(url, { maxBytes: MAX_RESPONSE_BYTES, timeout: TIMEOUT_MS });
  }

  #prove({ href }: URL, cached: CachedCertificate): void {
    if (this.#proven.has(href)) return;
    this.#unproven.delete(href);
    keep(this.#proven, href, cached);
  }

  async #fetchAndCache(url: URL, now: Milliseconds): Promise<CachedCertificate> {
    const { certificate, validTo } = await this.#fetch(url);
    const cached = { certificate, key: certificate.publicKey, validTo, until: now + DAY_MS };
    this.#attempts.delete(url.href);
    keep(this.#proven.has(url.href) ? this.#proven : this.#unproven, url.href, cached);
    return cached;
  }

  async #fetch(url: URL): Promise<{ certificate: X509Certificate; validTo: EpochMilliseconds }> {
    const { body } = await this.#get(url, { maxBytes: MAX_CERTIFICATE_BYTES, timeout: TIMEOUT_MS });
    let certificate: X509Certificate;
    try {
      certificate = new X509Certificate(body);
    } catch (thrown) {
      throw new RemoteFailure(`${url.host}: the response is not a certificate (${toErrorText(thrown)})`);
    }
    const now = this.#clock.now();
    const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
    if (!(from <= now && now < to)) throw new RemoteFailure(`${url.host}: the certificate is not valid now`);
    return { certificate, validTo: to };
  }
}

/** Whether the certificate is for this name: as its common name, as senders of signing certificates write it, or as a DNS name. */
function hasName({ subject, subjectAltName = '' }: X509Certificate, name: string): boolean {
  return subject.split('\n').includes(`CN=${name}`) || subjectAltName.split(', ').includes(`DNS:${name}`);
}

function keep(cache: CertificateCache, href: string, cached: CachedCertificate): void {
  cache.delete(href);
  const [oldest] = cache.keys();
  if (oldest !== undefined && cache.size >= MAX_CACHED) cache.delete(oldest);
  cache.set(href, cached);
}

interface Fetch {
  readonly at: Milliseconds;
  readonly client: string;
}

/**
 * Limits fetches per minute, for each host apart: an attack on the route of one sender must not stop those of another. Clients share them: a
 * client with invented URLs must not stop the deliveries of the sender. The fewer are left, the fewer a client gets, so that it
 * takes some thirty clients to use them up.
 */
class Budget {
  /** The config and the patterns of senders bound the number of hosts. */
  readonly #spent = new Map<string, readonly Fetch[]>();

  spend(now: Milliseconds, { host }: URL, address: string): void {
    const client = toSite(toClientNetwork(address));
    const recent = (this.#spent.get(host) ?? []).filter(({ at }) => now - at < MINUTE_MS);
    const own = recent.filter((fetch) => fetch.client === client).length;
    const left = MAX_FETCHES_PER_MINUTE - recent.length;
    if (left === 0 || own >= left * CLIENT_SHARE) throw new RemoteFailure(`${host}: too many fetches`);
    this.#spent.set(host, [...recent, { at: now, client }]);
  }
}
