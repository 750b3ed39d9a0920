/** Every handshake by its name. */
import type { HandshakeName } from '../schemes/description.ts';
import { createCloudEvents } from './cloudevents.ts';
import { createDiscord } from './discord.ts';
import type { Handshake, HandshakeOptions } from './handshake.ts';
import { createMeta } from './meta.ts';
import { createMicrosoftGraph } from './microsoft-graph.ts';
import { createSlack } from './slack.ts';
import { createTwitch } from './twitch.ts';
import { createX } from './x.ts';
import { createZoom } from './zoom.ts';

/** What is known of a kind before a route asks for it. */
export interface HandshakeKind {
  create(options: HandshakeOptions): Handshake;
  /** Which method it comes by, where that is none of deliveries. */
  readonly method?: 'GET' | 'OPTIONS';
  /** A token of its own: what it is judged by, or may be. */
  readonly token?: 'needed' | 'optional';
  /** The token stands in a query parameter that the config names; this is its name where it does not. */
  readonly parameter?: string;
  /** Who may ask is a list of names. */
  readonly hasOrigins?: true;
  /** Answered by the route's own HMAC-SHA256 keys. */
  readonly hasMac?: true;
}

/** All of them. */
export const HANDSHAKES: Readonly<Record<HandshakeName, HandshakeKind>> = {
  slack: { create: createSlack },
  zoom: { create: createZoom, hasMac: true },
  meta: { create: createMeta, method: 'GET', token: 'needed' },
  x: { create: createX, method: 'GET', hasMac: true },
  twitch: { create: createTwitch },
  discord: { create: createDiscord },
  'microsoft-graph': { create: createMicrosoftGraph, token: 'needed', parameter: 'token' },
  cloudevents: { create: createCloudEvents, method: 'OPTIONS', token: 'optional', parameter: 'access_token', hasOrigins: true },
};

/** Their names, for the config. */
export const HANDSHAKE_NAMES = Object.keys(HANDSHAKES) as HandshakeName[];

/** Makes a route's handshake. */
export function compileHandshake(options: HandshakeOptions): Handshake {
  return HANDSHAKES[options.type].create(options);
}
