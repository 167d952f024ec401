/** The library under test; with a fault of faults.mjs planted, if one is named. */

/** What a simulation plays: the classes of src/, each history may share them. */
export async function libraryWith(planted = null) {
  const from = (name) => import(`../../src/${name}.ts${planted ? `?planted=${planted}` : ""}`);
  const [{ Session }, { KnownRegions }, { Subscriber }] = await Promise.all([from("session"), from("regions"), from("subscriber")]);
  return { Session, KnownRegions, Subscriber };
}
