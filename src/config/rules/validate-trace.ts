/** The rules of tracing. */
import type { Config } from '../schema/config.ts';
import { type Path, type Rating, warning } from './rating.ts';

/** Warnings about routes that continue the traces of unverified callers. */
export function checkTraces({ routes }: Config): Rating[] {
  return routes.flatMap(({ trace, allow, mode }, index) => {
    if (trace.trust !== 'always' || (allow === undefined && mode === 'enforce')) return [];
    const path: Path = ['routes', index, 'trace', 'trust'];
    const message = 'unverified clients are allowed here, so they can add to the traces of the app and force sampling';
    return [warning(path, message, 'remove trust, unless only your own callers can reach the gate')];
  });
}
