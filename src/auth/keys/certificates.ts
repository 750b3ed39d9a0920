/** Certificates and other URLs that senders put into messages: fetched once, cached while valid, and rate-limited. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { type HttpsGet, RemoteFailure } from './https-get.ts';

interface CachedKey {
  readonly key: KeyObject;
  /** Fetched again from then on. */
  readonly until: EpochMilliseconds;
}

/** A fetch in progress, or one that failed recently. */
interface Attempt {
  readonly key: Promise<KeyObject>;
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

  /** The key of the certificate at `url`. The caller must have checked the host. Rejects with RemoteFailure. */
  async key(url: URL): Promise<KeyObject> {
    const now = this.#clock.now();
    const cached = this.#cached.get(url.href);
    if (cached !== undefined && now < cached.until) return cached.key;
    for (const [href, { until }] of this.#attempts) if (now >= until) this.#attempts.delete(href);
    const attempt = this.#attempts.get(url.href);
    if (attempt !== undefined) return attempt.key;
    // Attackers can send new URLs at will, and must not use up the budget of a URL that was valid: that one is fetched once per FAILURE_MS.
    if (cached === undefined) this.#newUrls.spend(now, url);
    const key = this.#fetchAndCache(url, now);
    this.#attempts.set(url.href, { key, until: now + FAILURE_MS });
    return key;
  }

  /** Requests a URL that the sender wants to be called. The caller must have checked the host. Rejects with RemoteFailure. */
  async follow(url: URL): Promise<void> {
    this.#followed.spend(this.#clock.now(), url);
    await this.#get(url, { maxBytes: MAX_RESPONSE_BYTES, timeout: TIMEOUT_MS });
  }

  async #fetchAndCache(url: URL, now: EpochMilliseconds): Promise<KeyObject> {
    const { publicKey, validTo } = await this.#fetch(url, now);
    this.#attempts.delete(url.href);
    this.#cached.delete(url.href);
    if (this.#cached.size >= MAX_CACHED_KEYS) this.#cached.delete(this.#cached.keys().next().value as string);
    this.#cached.set(url.href, { key: publicKey, until: Math.min(now + DAY_MS, validTo) });
    return publicKey;
  }

  async #fetch(url: URL, now: EpochMilliseconds): Promise<{ publicKey: KeyObject; validTo: EpochMilliseconds }> {
    const { body } = await this.#get(url, { maxBytes: MAX_CERTIFICATE_BYTES, timeout: TIMEOUT_MS });
    let certificate: X509Certificate;
    try {
      certificate = new X509Certificate(body);
    } catch (thrown) {
      throw new RemoteFailure(`${url.host}: the response is not a certificate (${toErrorText(thrown)})`);
    }
    const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
    if (now < from || now >= to) throw new RemoteFailure(`${url.host}: the certificate is not valid now`);
    return { publicKey: certificate.publicKey, validTo: to };
  }
}

/** Limits fetches per minute. */
class Budget {
  #spent: EpochMilliseconds[] = [];

  spend(now: EpochMilliseconds, url: URL): void {
    this.#spent = this.#spent.filter((at) => now - at < MINUTE_MS);
    if (this.#spent.length >= MAX_FETCHES_PER_MINUTE) throw new RemoteFailure(`${url.host}: too many fetches`);
    this.#spent.push(now);
  }
}
