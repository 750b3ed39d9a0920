/** The events that the rotation controller logs. */
import type { Logger, TelemetryLogEvent } from '../../telemetry/log/logger.ts';

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
export type RotationLogger = Logger<RotationLogEvent | TelemetryLogEvent>;
