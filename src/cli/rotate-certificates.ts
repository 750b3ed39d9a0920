/** `sidegate rotate-certificates`: renews the injector's CA and certificate and the webhook's caBundle; runs until it receives a signal. */
import { keepAlive, systemClock } from '../core/clock.ts';
import { RotationController } from '../kubernetes/certificates/certificate-rotation.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { logForeignLines } from './foreign-lines.ts';
import { openCluster, parseInjectorOptions, readInjectorConfig } from './injector-command.ts';
import { EXIT, type Io } from './io.ts';
import { Shutdown } from './shutdown.ts';
import { readVersion } from './version.ts';

const NAME = 'rotate-certificates';
/** Runs until a signal. */
export async function runRotateCertificates(args: readonly string[], io: Io): Promise<number> {
  const options = parseInjectorOptions(args, NAME, io);
  if (typeof options === 'number') return options;
  const config = await readInjectorConfig(options.config, io);
  if (config === undefined) return EXIT.failed;
  const { rotation, log } = config;
  if (rotation === undefined) {
    io.stderr(`${options.config}: error rotation: missing: it names the Secrets and the webhook configuration to renew\n`);
    return EXIT.failed;
  }
  const kube = await openCluster(options, io);
  if (kube === undefined) return EXIT.failed;
  const logger = createLogger({ level: log.level, version: readVersion() });
  logForeignLines(logger);
  const controller = new RotationController({ rotation, kube, clock: systemClock, logger });
  const shutdown = new Shutdown(logger, { grace: 0, drain: 0 });
  keepAlive();
  controller.start();
  const { namespace, webhook } = rotation;
  logger.info('rotation_started', { namespace, webhook });
  return shutdown.drain(controller);
}
