/** Loads the code that stores bodies: a separate bundle, for configs with a route that stores any. */
import type { Config } from '../config/schema/config.ts';

/** The code. */
export type BodyModule = typeof import('../gateway/pipeline/body-recorders.ts');

/** Undefined if no route stores bodies. */
export async function loadBodyModule({ routes }: Pick<Config, 'routes'>): Promise<BodyModule | undefined> {
  return routes.some(({ webhook }) => webhook?.storeBody !== undefined)
    ? import('../gateway/pipeline/body-recorders.ts')
    : undefined;
}
