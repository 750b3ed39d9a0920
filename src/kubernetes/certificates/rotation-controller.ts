/** The rotation controller: holds the CA's key and the right to change the webhook's caBundle, and listens on no port. */

import type { Clock } from '../../core/clock.ts';
import { runDetached } from '../../core/safe-events.ts';
import { watchEscapedErrors } from '../../telemetry/log/escaped-errors.ts';
import type { KubeClient } from '../client/client.ts';
import { CertificateRotation, type RotationConfig } from './certificate-rotation.ts';
import type { RotationLogger } from './log-events.ts';

/** The dependencies, provided by the command that starts the controller. */
export interface RotationContext {
  readonly rotation: RotationConfig;
  readonly kube: KubeClient;
  readonly clock: Clock;
  readonly logger: RotationLogger;
}

/** A running controller. */
export class RotationController {
  readonly #context: RotationContext;
  readonly #rotation: CertificateRotation;
  readonly #unwatchErrors: () => void;

  constructor(context: RotationContext) {
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
