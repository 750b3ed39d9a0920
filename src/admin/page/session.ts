/** The state that the page starts with. */

/** The gate, and what its user may do. */
export interface Session {
  readonly version: string;
  readonly replica: string;
  /** The config has users: they can log in to act. */
  readonly canLogIn: boolean;
  readonly hasOutgoing: boolean;
  /** The list also has requests of other replicas, but not the stream. */
  readonly hasReplicas: boolean;
  /** The user who is logged in. */
  readonly user: string | undefined;
}

/** Reads the attributes that the gate wrote. */
export function readSession({ dataset }: HTMLElement): Session {
  const user = dataset['user'] ?? '';
  return {
    version: dataset['version'] ?? '',
    replica: dataset['replica'] ?? '',
    canLogIn: dataset['canLogIn'] === 'true',
    hasOutgoing: dataset['hasOutgoing'] === 'true',
    hasReplicas: dataset['hasReplicas'] === 'true',
    user: user === '' ? undefined : user,
  };
}
