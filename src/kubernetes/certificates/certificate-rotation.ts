/** Keeps the CA, the caBundle of the webhook and the injector's serving certificate in step. Holds the CA's key, so nothing here listens. */

import type { X509Certificate } from 'node:crypto';
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { watchEscapedErrors } from '../../telemetry/log/escaped-errors.ts';
import type { Logger, TelemetryLogEvent } from '../../telemetry/log/logger.ts';
import type { KubeClient } from '../client/client.ts';
import { type CaSet, createCa, isValidAt, readSecretData, toEnd, toIssuedAt, toSecretData, toTrusted } from './ca.ts';
import { ClusterObjectError, ClusterSecret, isSameTrust, type SecretObject, WebhookBundle } from './cluster-objects.ts';
import { type IssuedPair, issuePair, readPairData, toNames, toPairData } from './server-pair.ts';

type RotationLogEvent =
  | 'ca_rotated'
  | 'ca_bundle_patched'
  | 'certificate_check_failed'
  | 'certificate_check_recovered'
  | 'certificate_issued'
  | 'draining'
  | 'rotation_started'
  | 'stopped';

/** The log of the rotation controller. */
type RotationLogger = Logger<RotationLogEvent | TelemetryLogEvent>;

/** The objects that it maintains, and the lifetimes of the certificates. */
interface RotationConfig extends RotationTimes {
  readonly namespace: string;
  readonly caSecret: string;
  readonly serverSecret: string;
  readonly service: string;
  readonly webhook: string;
  readonly dnsNames: readonly string[];
  readonly checkInterval: Milliseconds;
}

/** The running rotation controller: holds the CA's key and the right to change the webhook's caBundle, and listens on no port. */
export class RotationController {
  readonly #context;
  readonly #rotation: CertificateRotation;
  readonly #unwatchErrors: () => void;

  constructor(context: {
    readonly rotation: RotationConfig;
    readonly kube: KubeClient;
    readonly clock: Clock;
    readonly logger: RotationLogger;
  }) {
    this.#context = context;
    this.#rotation = new CertificateRotation(context.rotation, context);
    // The controller has no port from which metrics could be scraped, so these errors are only logged.
    this.#unwatchErrors = watchEscapedErrors({ ...context, metrics: { escapedError: () => undefined } });
  }

  /** Starts the rotation. Failures are logged and retried. */
  start(): void {
    runDetached(this.#rotation.start());
  }

  /** Stops immediately. This is safe because each step is a single write. */
  async stop(): Promise<true> {
    this.#rotation.close();
    this.#context.kube.close();
    this.#unwatchErrors();
    return true;
  }
}

/** The pair that the injectors serve, and the Secret as it was read. */
interface Served {
  readonly issued: IssuedPair | undefined;
  readonly object: SecretObject;
}

/** How long until every API server uses a changed caBundle. They watch it, so this takes less than a second. */
const SETTLED_AFTER_MS: Milliseconds = 10_000;
const FIRST_RETRY_MS: Milliseconds = 1_000;
const MAX_ROUNDS = 8;
const JITTER = 0.2;

/**
 * Checks everything at an interval and takes the next step that is due. Needs no leader election: every write carries the
 * resourceVersion that was read, so two controllers at once (a rolling update) agree on one CA.
 */
class CertificateRotation {
  readonly #config: RotationConfig;
  readonly #parts;
  readonly #ca: CaSecret;
  readonly #server: ClusterSecret;
  readonly #bundle: WebhookBundle;
  readonly #trustedSince = new Map<string, Milliseconds>();
  /** Remembered in case both Secrets are emptied while injectors still serve a certificate that it signed. */
  #lastIssuer: X509Certificate | undefined;
  #problem: string | undefined;
  #failures = 0;
  #cancel: CancelTimer = () => undefined;
  #isClosed = false;

  constructor(
    config: RotationConfig,
    parts: {
      readonly kube: Pick<KubeClient, 'request'>;
      readonly clock: Clock;
      readonly logger: RotationLogger;
    },
  ) {
    this.#config = config;
    this.#parts = parts;
    const { namespace, caSecret, serverSecret, webhook } = config;
    this.#ca = new CaSecret(parts.kube, namespace, caSecret);
    this.#server = new ClusterSecret(parts.kube, { namespace, name: serverSecret, verbs: 'get and update' });
    this.#bundle = new WebhookBundle(parts.kube, webhook);
  }

  /** Checks once, and from then on at the interval; never rejects. */
  async start(): Promise<void> {
    const { logger } = this.#parts;
    try {
      await this.#align();
      if (this.#problem !== undefined) logger.info('certificate_check_recovered');
      this.#problem = undefined;
      this.#failures = 0;
    } catch (thrown) {
      const problem = toErrorText(thrown);
      if (problem !== this.#problem) logger.warn('certificate_check_failed', { problem });
      this.#problem = problem;
      this.#failures++;
    }
    if (!this.#isClosed) this.#cancel = this.#parts.clock.after(this.#toDelay(), () => this.start());
  }

  /** Takes no further step. */
  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  async #align(): Promise<void> {
    for (let round = 0; round < MAX_ROUNDS; round++) {
      // The bundle is read before the Secret: in the other order, an outdated Secret could remove a new CA from the bundle.
      const bundle = await this.#bundle.read();
      const served = await this.#readServed();
      const caSet = await this.#agree();
      const trusted = toTrusted(caSet);
      if (!isSameTrust(bundle.trusted, trusted) && !(await this.#patch(bundle, trusted))) continue;
      this.#noteTrusted(trusted);
      if (await this.#renew(served, caSet)) return;
    }
    throw new ClusterObjectError(`another client keeps changing the webhook configuration ${this.#config.webhook} or a Secret`);
  }

  async #readServed(): Promise<Served> {
    const object = await this.#server.read();
    const issued = readPairData(object.data ?? {});
    this.#lastIssuer = issued?.issuer ?? this.#lastIssuer;
    return { issued, object };
  }

  /** The CAs that all controllers agree on, after the next step if one is due. */
  async #agree(): Promise<CaSet> {
    const { clock, logger } = this.#parts;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const reading = await this.#ca.read();
      const plan = planRotation(reading.caSet, this.#lastIssuer, clock.now(), this.#config);
      if (plan === undefined) return reading.caSet as CaSet;
      if (!(await this.#ca.write(reading, plan.caSet))) continue;
      const { current, next } = plan.caSet;
      logger.info('ca_rotated', {
        step: plan.step,
        current: toTitle(current.certificate),
        next: next === undefined ? undefined : toTitle(next.certificate),
      });
      return plan.caSet;
    }
    throw new ClusterObjectError(`another client keeps changing the Secret ${this.#config.caSecret}`);
  }

  async #patch(bundle: Awaited<ReturnType<WebhookBundle['read']>>, trusted: readonly X509Certificate[]): Promise<boolean> {
    if (!(await this.#bundle.write(bundle, trusted))) return false;
    this.#parts.logger.info('ca_bundle_patched', {
      webhook: this.#config.webhook,
      previous: bundle.trusted.map(toTitle),
      current: trusted.map(toTitle),
    });
    return true;
  }

  /** Records since when the API servers have trusted each of them without interruption. */
  #noteTrusted(trusted: readonly X509Certificate[]): void {
    const now = this.#parts.clock.monotonic();
    const prints = trusted.map(({ fingerprint256 }) => fingerprint256);
    for (const print of this.#trustedSince.keys()) if (!prints.includes(print)) this.#trustedSince.delete(print);
    for (const print of prints) if (!this.#trustedSince.has(print)) this.#trustedSince.set(print, now);
  }

  /** Writes a new pair if one is due; false if the Secret has changed in the meantime. */
  async #renew({ issued, object }: Served, { current }: CaSet): Promise<boolean> {
    const { clock, logger } = this.#parts;
    if (!this.#isRenewalDue(issued, current.certificate, clock.now())) return true;
    const renewed = issuePair(current, this.#config, clock.now());
    if (!(await this.#server.write(object, toPairData(renewed)))) return false;
    this.#lastIssuer = renewed.issuer;
    const { certificate, issuer } = renewed;
    logger.info('certificate_issued', {
      serial: certificate.serialNumber,
      issuer: toTitle(issuer),
      notAfter: certificate.validTo,
    });
    return true;
  }

  #isRenewalDue(issued: IssuedPair | undefined, current: X509Certificate, now: EpochMilliseconds): boolean {
    if (issued === undefined || !isValidAt(issued.certificate, now)) return true;
    const { certificate, issuer } = issued;
    if (issuer.raw.equals(current.raw))
      return now >= toRenewal(certificate) || toNames(this.#config).some((name) => certificate.checkHost(name) === undefined);
    // An API server that does not know the new CA yet would reject the handshake; until then the old one is still trusted.
    const isOldTrusted = this.#trustedSince.has(issuer.fingerprint256);
    const settledAfter = Math.min(this.#config.overlap, SETTLED_AFTER_MS);
    const since = this.#trustedSince.get(current.fingerprint256) ?? Number.POSITIVE_INFINITY;
    return !isOldTrusted || this.#parts.clock.monotonic() - since >= settledAfter;
  }

  #toDelay(): Milliseconds {
    const { checkInterval } = this.#config;
    const delay = this.#failures === 0 ? checkInterval : Math.min(checkInterval, FIRST_RETRY_MS * 2 ** (this.#failures - 1));
    // Jitter, so that controllers that started together do not send their requests together.
    return delay * (1 - JITTER + 2 * JITTER * Math.random());
  }
}

function toTitle({ subject }: X509Certificate): string {
  return subject.replace(/^CN=/, '');
}

/** The Secret at the time it was read. */
interface CaReading {
  readonly caSet: CaSet | undefined;
  readonly object: SecretObject;
}

/** The Secret with the CA and its key, which only the rotation controller reads. */
class CaSecret {
  readonly #secret: ClusterSecret;

  constructor(kube: Pick<KubeClient, 'request'>, namespace: string, name: string) {
    this.#secret = new ClusterSecret(kube, { namespace, name, verbs: 'get and update' });
  }

  /** Rejects with ClusterObjectError. */
  async read(): Promise<CaReading> {
    const object = await this.#secret.read();
    const caSet = readSecretData(object.data ?? {});
    if (caSet !== undefined && 'problem' in caSet) throw new ClusterObjectError(`${this.#secret.title}: ${caSet.problem}`);
    return { caSet, object };
  }

  /** False if the Secret has changed since it was read; rejects with ClusterObjectError. */
  write({ object }: CaReading, caSet: CaSet): Promise<boolean> {
    return this.#secret.write(object, toSecretData(caSet));
  }
}

// Decides when a CA is replaced, in steps that keep every server trusted at all times. Pure.

/** Lifetimes. */
export interface RotationTimes {
  readonly caLifetime: Milliseconds;
  readonly serverLifetime: Milliseconds;
  /** How long the next CA is trusted before it signs. */
  readonly overlap: Milliseconds;
}

/** A step of the rotation, as logged. */
type RotationStep = 'created' | 'replaced' | 'announced' | 'switched' | 'retired';

/** The state to write. */
interface RotationPlan {
  readonly step: RotationStep;
  readonly caSet: CaSet;
}

/** The share of its lifetime after which a certificate is renewed. */
const RENEWED_AFTER = 2 / 3;
/** Margin for replicas that read the Secret before it was written, and for clocks that differ. */
const MAX_MARGIN_MS: Milliseconds = 60_000;

/**
 * The next step, or undefined if no step is due. `known`: the CA that this replica used last. It stays trusted for a while if an operator
 * empties the Secret to force a rotation.
 */
export function planRotation(
  caSet: CaSet | undefined,
  known: X509Certificate | undefined,
  now: EpochMilliseconds,
  times: RotationTimes,
): RotationPlan | undefined {
  if (caSet === undefined) {
    const previous = known === undefined || toEnd(known) <= now ? undefined : { certificate: known, since: now };
    return { step: 'created', caSet: { current: createCa(now, times.caLifetime), ...withPrevious(previous) } };
  }
  const { current, next, previous } = caSet;
  const isCurrentValid = isValidAt(current.certificate, now);
  const isNextValid = next !== undefined && isValidAt(next.certificate, now);
  if (isNextValid && (!isCurrentValid || now >= toIssuedAt(next.certificate) + times.overlap))
    return { step: 'switched', caSet: { current: next, previous: { certificate: current.certificate, since: now } } };
  if (!isCurrentValid) return replace(caSet, now, times);
  if (previous !== undefined && now >= previous.since + times.serverLifetime + Math.min(times.overlap, MAX_MARGIN_MS))
    return { step: 'retired', caSet: { current, ...(next === undefined ? undefined : { next }) } };
  if (!isNextValid && now >= toRenewal(current.certificate))
    return {
      step: 'announced',
      caSet: { current, next: createCa(now, times.caLifetime), ...withPrevious(previous) },
    };
  return undefined;
}

/** An API server does not trust a CA that is not valid, so this needs no overlap. If this clock is slow, it does trust it. */
function replace({ current, previous }: CaSet, now: EpochMilliseconds, { caLifetime }: RotationTimes): RotationPlan {
  const before = toEnd(current.certificate) <= now ? previous : { certificate: current.certificate, since: now };
  return { step: 'replaced', caSet: { current: createCa(now, caLifetime), ...withPrevious(before) } };
}

/** When a certificate must be renewed: after two thirds of its lifetime. */
function toRenewal(certificate: X509Certificate): EpochMilliseconds {
  const made = toIssuedAt(certificate);
  return made + (toEnd(certificate) - made) * RENEWED_AFTER;
}

function withPrevious(previous: CaSet['previous']): Pick<CaSet, 'previous'> {
  return previous === undefined ? {} : { previous };
}
