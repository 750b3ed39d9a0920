/** The injector as its own authority: keeps Secret, caBundle and its own certificate in step, beside other replicas that do the same. */
import { generateKeyPairSync, type X509Certificate } from 'node:crypto';
import { issueServer } from '../certificate/certificate.ts';
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { Secret } from '../core/secret.ts';
import type { KubeClient } from '../kube/client.ts';
import type { InjectorMetrics } from '../observe/injector-metrics.ts';
import type { Logger } from '../observe/logger.ts';
import { type Authorities, createAuthority, toEnd, toTrusted, toValidity } from './authority.ts';
import { AuthoritySecret } from './authority-secret.ts';
import { findChainProblem } from './chain.ts';
import { planRotation, type RotationTimes, toRenewal } from './rotation.ts';
import { Trouble } from './trouble.ts';
import { isSameTrust, WebhookBundle } from './webhook-bundle.ts';

/** What it goes by. */
export interface SelfSignedConfig extends RotationTimes {
  readonly namespace: string;
  readonly secret: string;
  readonly service: string;
  readonly webhook: string;
  readonly dnsNames: readonly string[];
  readonly checkInterval: Milliseconds;
}

/** A certificate with its key, PEM. */
export interface ServerPair {
  readonly cert: Buffer;
  readonly key: Secret;
}

/** What it stands on. */
export interface SelfSignedParts {
  readonly kube: Pick<KubeClient, 'request'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: InjectorMetrics;
  /** Takes the certificate for all connections from now on. */
  readonly serve: (pair: ServerPair) => void;
}

interface Served {
  readonly certificate: X509Certificate;
  readonly issuer: X509Certificate;
}

/** What the API server goes by, as it was last seen. */
interface Live {
  readonly trusted: readonly X509Certificate[];
  readonly serverName: string | undefined;
}

/** Until every API server has heard of a change: they watch, so it takes less than a second. */
const SETTLED_AFTER_MS: Milliseconds = 10_000;
const FIRST_RETRY_MS: Milliseconds = 1_000;
const MOST_ROUNDS = 8;
const JITTER = 0.2;

/** Keeps them in step. */
export class SelfSigned {
  readonly #config: SelfSignedConfig;
  readonly #parts: SelfSignedParts;
  readonly #secret: AuthoritySecret;
  readonly #bundle: WebhookBundle;
  readonly #trustedSince = new Map<string, Milliseconds>();
  #served: Served | undefined;
  #live: Live | undefined;
  #trouble: string | undefined;
  #failures = 0;
  #cancel: CancelTimer = () => undefined;
  #isClosed = false;

  constructor(config: SelfSignedConfig, parts: SelfSignedParts) {
    this.#config = config;
    this.#parts = parts;
    this.#secret = new AuthoritySecret(parts.kube, config.namespace, config.secret);
    this.#bundle = new WebhookBundle(parts.kube, config.webhook);
  }

  /** Looks once, and from then on by itself. */
  async start(): Promise<void> {
    await this.#check();
  }

  /** Stops to look. */
  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  /** Undefined while the API server, as it was last seen, accepts what is served. */
  notReadyBecause(): string | undefined {
    if (this.#live === undefined) return this.#trouble ?? 'the webhook configuration has not been looked at yet';
    const chain = this.#served === undefined ? [] : [this.#served.certificate];
    const problem = findChainProblem(chain, this.#live.trusted, this.#live.serverName, this.#parts.clock.now());
    return problem === undefined || this.#trouble === undefined ? problem : `${problem}; ${this.#trouble}`;
  }

  async #check(): Promise<void> {
    const { clock, metrics, logger } = this.#parts;
    try {
      await this.#align();
      if (this.#trouble !== undefined) logger.info('certificate_check_recovered');
      this.#trouble = undefined;
      this.#failures = 0;
      metrics.certificateCheck('success', clock.now());
    } catch (thrown) {
      const problem = toErrorText(thrown);
      if (problem !== this.#trouble) logger.warn('certificate_check_failed', { problem });
      this.#trouble = problem;
      this.#failures++;
      metrics.certificateCheck('failure', clock.now());
    }
    if (!this.#isClosed) this.#cancel = clock.after(this.#toDelay(), () => this.#check());
  }

  async #align(): Promise<void> {
    for (let round = 0; round < MOST_ROUNDS; round++) {
      // First what is trusted, then what should be: with them the other way round, an old Secret could take a new authority out of the bundle.
      const bundle = await this.#bundle.read();
      const authorities = await this.#agree();
      const trusted = toTrusted(authorities);
      if (!isSameTrust(bundle.trusted, trusted) && !(await this.#patch(bundle, trusted))) continue;
      this.#live = { trusted, serverName: bundle.serverName };
      this.#noteTrusted(trusted);
      this.#parts.metrics.authorityEnds(toEnd(authorities.current.certificate));
      this.#serve(authorities);
      return;
    }
    throw new Trouble(`the webhook configuration ${this.#config.webhook} is changed by somebody all the time`);
  }

  /** What the replicas have in common, moved on by a step where one is due. */
  async #agree(): Promise<Authorities> {
    const { clock, logger, metrics } = this.#parts;
    for (let round = 0; round < MOST_ROUNDS; round++) {
      const reading = await this.#secret.read();
      const plan = planRotation(reading.authorities, this.#served?.issuer, clock.now(), this.#config);
      if (plan === undefined) return reading.authorities as Authorities;
      if (!(await this.#secret.write(reading, plan.authorities))) continue;
      metrics.certificate(`authority_${plan.step}`);
      const { current, next } = plan.authorities;
      logger.info('authority_rotated', {
        step: plan.step,
        current: toTitle(current.certificate),
        next: next === undefined ? undefined : toTitle(next.certificate),
      });
      return plan.authorities;
    }
    throw new Trouble(`the Secret ${this.#config.secret} is changed by somebody all the time`);
  }

  async #patch(bundle: Awaited<ReturnType<WebhookBundle['read']>>, trusted: readonly X509Certificate[]): Promise<boolean> {
    const { logger, metrics } = this.#parts;
    try {
      const isPatched = await this.#bundle.write(bundle, trusted);
      if (!isPatched) return false;
    } catch (thrown) {
      metrics.bundlePatch('failure');
      throw thrown;
    }
    metrics.bundlePatch('success');
    logger.info('ca_bundle_patched', {
      webhook: this.#config.webhook,
      was: bundle.trusted.map(toTitle),
      is: trusted.map(toTitle),
    });
    return true;
  }

  /** Since when the API servers trust each of them without a break. */
  #noteTrusted(trusted: readonly X509Certificate[]): void {
    const now = this.#parts.clock.monotonic();
    const prints = trusted.map(({ fingerprint256 }) => fingerprint256);
    for (const print of this.#trustedSince.keys()) if (!prints.includes(print)) this.#trustedSince.delete(print);
    for (const print of prints) if (!this.#trustedSince.has(print)) this.#trustedSince.set(print, now);
  }

  #serve(authorities: Authorities): void {
    const { clock, serve, metrics, logger } = this.#parts;
    if (!this.#isRenewalDue(authorities.current.certificate, clock.now())) return;
    const { issuer, certificate, pair } = issuePair(authorities.current, this.#config, clock.now());
    serve(pair);
    this.#served = { issuer, certificate };
    metrics.certificate('server_issued');
    metrics.serverLasts(Date.parse(certificate.validFrom), toEnd(certificate));
    logger.info('certificate_issued', { serial: certificate.serialNumber, by: toTitle(issuer), until: certificate.validTo });
  }

  #isRenewalDue(current: X509Certificate, now: EpochMilliseconds): boolean {
    const served = this.#served;
    if (served === undefined || toEnd(served.certificate) <= now) return true;
    if (served.issuer.raw.equals(current.raw)) return now >= toRenewal(served.certificate);
    // Whoever has not heard of the new authority yet would refuse the handshake; the old one is trusted meanwhile.
    const isOldTrusted = this.#trustedSince.has(served.issuer.fingerprint256);
    const settledAfter = Math.min(this.#config.overlap, SETTLED_AFTER_MS);
    const since = this.#trustedSince.get(current.fingerprint256) ?? Number.POSITIVE_INFINITY;
    return !isOldTrusted || this.#parts.clock.monotonic() - since >= settledAfter;
  }

  #toDelay(): Milliseconds {
    const { checkInterval } = this.#config;
    const delay = this.#failures === 0 ? checkInterval : Math.min(checkInterval, FIRST_RETRY_MS * 2 ** (this.#failures - 1));
    // Replicas that started together do not stay in step.
    return delay * (1 - JITTER + 2 * JITTER * Math.random());
  }
}

/** A pair that nobody trusts, to listen with until there is a real one. */
export function createStopgap(now: EpochMilliseconds, life: Milliseconds): ServerPair {
  const names = { service: 'sidegate', namespace: 'none', dnsNames: [], serverLife: life };
  return issuePair(createAuthority(now, life), names, now).pair;
}

function issuePair(
  issuer: Authorities['current'],
  config: Pick<SelfSignedConfig, 'service' | 'namespace' | 'dnsNames' | 'serverLife'>,
  now: EpochMilliseconds,
): Served & { readonly pair: ServerPair } {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const certificate = issueServer(toNames(config), keys.publicKey, toValidity(now, config.serverLife), issuer);
  const key = new Secret(Buffer.from(keys.privateKey.export({ type: 'pkcs8', format: 'pem' })));
  return { certificate, issuer: issuer.certificate, pair: { cert: Buffer.from(certificate.toString()), key } };
}

/** The API server asks by `<service>.<namespace>.svc`; the others are for people with curl. */
function toNames({ service, namespace, dnsNames }: Pick<SelfSignedConfig, 'service' | 'namespace' | 'dnsNames'>): string[] {
  const base = `${service}.${namespace}`;
  return [...new Set([`${base}.svc`, `${base}.svc.cluster.local`, base, service, ...dnsNames])];
}

function toTitle({ subject }: X509Certificate): string {
  return subject.replace(/^CN=/, '');
}
