/** Compiles the webhook section of a route, once for each config that is loaded, and loads the code that stores bodies if a route needs it. */
import type { Config, RouteConfig, WebhookConfig } from '../config/schema/config.ts';
import { compileHandshake } from '../verify/handshakes/catalogue.ts';
import type { Handshake } from '../verify/handshakes/handshake.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import type { Scheme } from '../verify/schemes/scheme.ts';

/** A webhook section, compiled. */
export interface CompiledWebhook {
  readonly config: WebhookConfig;
  readonly scheme: Scheme;
  readonly handshake: Handshake;
}

/** A route of the config, compiled; its keys and its upstream are loaded separately, as they change without the config. */
export interface CompiledRoute {
  readonly config: RouteConfig;
  readonly webhook: CompiledWebhook | undefined;
  /** Undefined if no route of the config stores bodies. */
  readonly bodies: BodyModule | undefined;
}

/** Compiles all routes, in the order of the config. */
export function compileRoutes({ routes }: Pick<Config, 'routes'>, bodies: BodyModule | undefined): CompiledRoute[] {
  return routes.map((route) => compileRoute(route, bodies));
}

/** Compiles one route. */
export function compileRoute(config: RouteConfig, bodies?: BodyModule): CompiledRoute {
  return { config, webhook: config.webhook && compileWebhook(config.webhook), bodies };
}

function compileWebhook(config: WebhookConfig): CompiledWebhook {
  const scheme = compileScheme(config.description);
  return { config, scheme, handshake: toHandshake(config, scheme) };
}

function toHandshake({ handshake, allowQuery }: WebhookConfig, scheme: Scheme): Handshake {
  if (handshake === undefined) return {};
  const { type, verifyToken, parameter = '', allowedOrigins, allowedRate, publicKey } = handshake;
  return compileHandshake({
    type,
    hasToken: verifyToken !== undefined,
    parameter,
    allowedOrigins,
    allowedRate,
    publicKey,
    allowQuery,
    scheme,
  });
}

/** The code. */
type BodyModule = typeof import('../gateway/pipeline/body-recorders.ts');

/** Undefined if no route stores bodies. */
export async function loadBodyModule({ routes }: Pick<Config, 'routes'>): Promise<BodyModule | undefined> {
  return routes.some(({ webhook }) => webhook?.storeBody !== undefined)
    ? import('../gateway/pipeline/body-recorders.ts')
    : undefined;
}
