/** Certificates and other URLs that senders put into messages: fetched once, cached while valid, and rate-limited. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { type HttpsGet, RemoteFailure } from './https-get.ts';

interface Fetched {
  readonly certificate: X509Certificate;
  readonly key: KeyObject;
}

interface CachedKey extends Fetched {
  /** Fetched again from then on. */
  readonly until: EpochMilliseconds;
}

/** A fetch in progress, or one that failed recently. */
interface Attempt {
  readonly fetched: Promise<Fetched>;
  readonly until: EpochMilliseconds;
}

const MAX_CERTIFICATE_BYTES = 16_384;
const MAX_RESPONSE_BYTES = 65_536;
const TIMEOUT_MS: Milliseconds = 5_000;
const DAY_MS: Milliseconds = 86_400_000;
/** A failure is cached for longer than a fetch takes, so that a flood of messages does not cause a flood of fetches. */
const FAILURE_MS: Milliseconds = 10_000;
const MAX_CACHED_KEYS = 16;
const MAX_FETCHES_PER_MINUTE = 10;
const MINUTE_MS: Milliseconds = 60_000;

/** Caches the keys of certificates. */
export class RemoteCertificates {
  readonly #get: HttpsGet;
  readonly #clock: Clock;
  /** Oldest first. */
  readonly #cached = new Map<string, CachedKey>();
  /** Separate from `#cached`: anyone can send URLs that fail, and those must not evict valid keys. */
  readonly #attempts = new Map<string, Attempt>();
  readonly #newUrls = new Budget();
  readonly #followed = new Budget();

  constructor(get: HttpsGet, clock: Clock) {
    this.#get = get;
    this.#clock = clock;
  }

  /**
   * The key of the certificate at `url`, which must have one of the names, if any are given. The caller must have checked the host.
   * Rejects with RemoteFailure.
   */
  async key(url: URL, names?: readonly string[]): Promise<KeyObject> {
    const { certificate, key } = await this.#find(url);
    if (names !== undefined && !names.some((name) => hasName(certificate, name)))
      throw new RemoteFailure(`${url.host}: the certificate has another name than ${names.join(' or ')}`);
    return key;
  }

  async #find(url: URL): Promise<Fetched> {
    const now = this.#clock.now();
    const cached = this.#cached.get(url.href);
    if (cached !== undefined && now < cached.until) return cached;
    for (const [href, { until }] of this.#attempts) if (now >= until) this.#attempts.delete(href);
    const attempt = this.#attempts.get(url.href);
    if (attempt !== undefined) return attempt.fetched;
    // Attackers can send new URLs at will, and must not use up the budget of a URL that was valid: that one is fetched once per FAILURE_MS.
    if (cached === undefined) this.#newUrls.spend(now, url);
    const fetched = this.#fetchAndCache(url, now);
    this.#attempts.set(url.href, { fetched, until: now + FAILURE_MS });
    return fetched;
  }

  /** Requests a URL that the sender wants to be called. The caller must have checked the host. Rejects with RemoteFailure. */
  async follow(url: URL): Promise<void> {
    this.#followed.spend(this.#clock.now(), url);
    await this.#get(url, { maxBytes: MAX_RESPONSE_BYTES, timeout: TIMEOUT_MS });
  }

  async #fetchAndCache(url: URL, now: EpochMilliseconds): Promise<Fetched> {
    const { certificate, validTo } = await this.#fetch(url, now);
    const fetched = { certificate, key: certificate.publicKey };
    this.#attempts.delete(url.href);
    this.#cached.delete(url.href);
    if (this.#cached.size >= MAX_CACHED_KEYS) this.#cached.delete(this.#cached.keys().next().value as string);
    this.#cached.set(url.href, { ...fetched, until: Math.min(now + DAY_MS, validTo) });
    return fetched;
  }

  async #fetch(url: URL, now: EpochMilliseconds): Promise<{ certificate: X509Certificate; validTo: EpochMilliseconds }> {
    const { body } = await this.#get(url, { maxBytes: MAX_CERTIFICATE_BYTES, timeout: TIMEOUT_MS });
    let certificate: X509Certificate;
    try {
      certificate = new X509Certificate(body);
    } catch (thrown) {
      throw new RemoteFailure(`${url.host}: the response is not a certificate (${toErrorText(thrown)})`);
    }
    const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
    if (!(from <= now && now < to)) throw new RemoteFailure(`${url.host}: the certificate is not valid now`);
    return { certificate, validTo: to };
  }
}

/** Whether the certificate is for this name: as its common name, as senders of signing certificates write it, or as a DNS name. */
function hasName({ subject, subjectAltName = '' }: X509Certificate, name: string): boolean {
  return subject.split('\n').includes(`CN=${name}`) || subjectAltName.split(', ').includes(`DNS:${name}`);
}

/** Limits fetches per minute, for each host apart: an attack on the route of one sender must not stop those of another. */
class Budget {
  /** The config and the patterns of senders bound the number of hosts. */
  readonly #spent = new Map<string, readonly EpochMilliseconds[]>();

  spend(now: EpochMilliseconds, { host }: URL): void {
    const recent = (this.#spent.get(host) ?? []).filter((at) => now - at < MINUTE_MS);
    if (recent.length >= MAX_FETCHES_PER_MINUTE) throw new RemoteFailure(`${host}: too many fetches`);
    this.#spent.set(host, [...recent, now]);
  }
}
