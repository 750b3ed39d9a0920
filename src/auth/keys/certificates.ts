/** What senders name by URL, above all their certificates: fetched once, remembered while good, and never more than a few new ones a minute. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { type HttpsGet, RemoteFailure } from './https-get.ts';

interface Good {
  readonly key: KeyObject;
  /** Fetched anew from then on. */
  readonly until: EpochMilliseconds;
}

/** A fetch under way, or one that failed a moment ago. */
interface Attempt {
  readonly key: Promise<KeyObject>;
  readonly until: EpochMilliseconds;
}

const LARGEST_BYTES = 16_384;
const LARGEST_ANSWER = 65_536;
const TIMEOUT_MS: Milliseconds = 5_000;
const DAY_MS: Milliseconds = 86_400_000;
/** A failure is remembered for a moment, longer than a fetch takes, so that a flood of messages is no flood of fetches. */
const FAILURE_MS: Milliseconds = 10_000;
const MOST = 16;
const MOST_A_MINUTE = 10;
const MINUTE_MS: Milliseconds = 60_000;

/** Holds them. */
export class RemoteCertificates {
  readonly #get: HttpsGet;
  readonly #clock: Clock;
  /** The longest known first. */
  readonly #good = new Map<string, Good>();
  /** Apart, as anybody can name URLs that fail: none of them takes the place of a good one. */
  readonly #attempts = new Map<string, Attempt>();
  readonly #newUrls = new Budget();
  readonly #followed = new Budget();

  constructor(get: HttpsGet, clock: Clock) {
    this.#get = get;
    this.#clock = clock;
  }

  /** The key of the certificate at `url`, whose host the caller vouches for; rejects with RemoteFailure. */
  async key(url: URL): Promise<KeyObject> {
    const now = this.#clock.now();
    const good = this.#good.get(url.href);
    if (good !== undefined && now < good.until) return good.key;
    for (const [href, { until }] of this.#attempts) if (now >= until) this.#attempts.delete(href);
    const attempt = this.#attempts.get(url.href);
    if (attempt !== undefined) return attempt.key;
    // Strangers name new URLs at will, and must not use up what one that was good needs: it may be asked for once in FAILURE_MS.
    if (good === undefined) this.#newUrls.spend(now, url);
    const key = this.#fetchGood(url, now);
    this.#attempts.set(url.href, { key, until: now + FAILURE_MS });
    return key;
  }

  /** Asks for a URL whose host the caller vouches for, as its sender wishes; rejects with RemoteFailure. */
  async follow(url: URL): Promise<void> {
    this.#followed.spend(this.#clock.now(), url);
    await this.#get(url, { maxBytes: LARGEST_ANSWER, timeout: TIMEOUT_MS });
  }

  async #fetchGood(url: URL, now: EpochMilliseconds): Promise<KeyObject> {
    const { publicKey, validTo } = await this.#fetch(url, now);
    this.#attempts.delete(url.href);
    this.#good.delete(url.href);
    if (this.#good.size >= MOST) this.#good.delete(this.#good.keys().next().value as string);
    this.#good.set(url.href, { key: publicKey, until: Math.min(now + DAY_MS, validTo) });
    return publicKey;
  }

  async #fetch(url: URL, now: EpochMilliseconds): Promise<{ publicKey: KeyObject; validTo: EpochMilliseconds }> {
    const { body } = await this.#get(url, { maxBytes: LARGEST_BYTES, timeout: TIMEOUT_MS });
    let certificate: X509Certificate;
    try {
      certificate = new X509Certificate(body);
    } catch (thrown) {
      throw new RemoteFailure(`${url.host}: no certificate (${toErrorText(thrown)})`);
    }
    const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
    if (now < from || now >= to) throw new RemoteFailure(`${url.host}: the certificate is not valid now`);
    return { publicKey: certificate.publicKey, validTo: to };
  }
}

/** A few a minute. */
class Budget {
  #spent: EpochMilliseconds[] = [];

  spend(now: EpochMilliseconds, url: URL): void {
    this.#spent = this.#spent.filter((at) => now - at < MINUTE_MS);
    if (this.#spent.length >= MOST_A_MINUTE) throw new RemoteFailure(`${url.host}: asked too often`);
    this.#spent.push(now);
  }
}
