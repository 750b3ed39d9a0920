/** The rules of tracing. */
import type { Config } from '../schema/config.ts';
import { type Path, type Rating, warning } from './rating.ts';

/** Risky choices of whose traces are continued. */
export function checkTraces({ routes }: Config): Rating[] {
  return routes.flatMap(({ trace, allow, mode }, index) => {
    if (trace.trust !== 'always' || (allow === undefined && mode === 'enforce')) return [];
    const path: Path = ['routes', index, 'trace', 'trust'];
    const message = 'strangers are let through here, and may write into the traces of the app and have everything recorded';
    return [warning(path, message, 'leave trust out, unless only your own callers can reach the gate')];
  });
}
