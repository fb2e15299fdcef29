(** Lemma 1: one shift per head suffices.

    Equations (10) to (13); book/theorem.md; attnconv.theory.theorem1.heads_for. *)

From mathcomp Require Import all_ssreflect all_algebra.
From AttnConv Require Import Attention.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Lemma1.
Variable F : comRingType.

(** A one-hot sum over the image reads one pixel of it. *)
Lemma sum_one_hot D (S : seq pixel) (X : image F D) c :
  uniq S -> c \in S -> \sum_(k <- S) (k == c)%:R *: X k = X c.
Proof.
move=> S_uniq cS; rewrite (bigD1_seq c) //= eqxx scale1r big1 ?addr0 // => k /negPf->.
by rewrite scale0r.
Qed.

(** A sum over the kernel is a sum over the heads. *)
Lemma sum_heads (V : zmodType) N (Delta : seq shift) (f : 'I_N -> shift) (G : shift -> V) :
  perm_eq (codom f) Delta -> \sum_(delta <- Delta) G delta = \sum_h G (f h).
Proof. by move=> /(perm_big _)<-; rewrite /codom big_image. Qed.

(** (13): hard heads, with [f] the shift of each head. *)
Lemma eq_13 N Din Dh Dout S (f : 'I_N -> shift) a
    (Wval : 'I_N -> 'M[F]_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout X q :
  uniq S -> (forall h, q + f h \in S) ->
  (forall h k, k \in S -> a h q k = (k - q == f h)%:R) ->
  mhsa S a Wval Wout bout X q = \sum_h X (q + f h) *m value_matrix Wval Wout h + bout.
Proof.
move=> S_uniq qS hard; rewrite eq_12; congr (_ + _); apply: eq_bigr => h _.
rewrite -(sum_one_hot X S_uniq (qS h)); congr (_ *m _).
by rewrite !big_seq; apply: eq_bigr => k kS; rewrite hard // subr_eq addrC.
Qed.

(** A kernel that is the matrix [M] at one shift. *)
Lemma conv_single Din Dout Delta d (M : 'M[F]_(Din, Dout)) X q : uniq Delta -> d \in Delta ->
  conv Delta (fun delta => (delta == d)%:R *: M) 0 X q = X (q + d) *m M.
Proof.
move=> Delta_uniq dD; rewrite /conv addr0 (bigD1_seq d) //= eqxx scale1r big1 ?addr0 //.
by move=> e /negPf->; rewrite scale0r mulmx0.
Qed.

(** The numbering of the shifts in the order of the list. *)
Lemma codom_nth N (Delta : seq shift) :
  size Delta = N -> codom (fun h : 'I_N => Delta`_h) = Delta.
Proof.
move=> <-; rewrite /codom /image_mem (map_comp (nth 0 Delta) val) val_enum_ord.
by rewrite map_nth_iota0 ?take_size.
Qed.

(** ** Lemma 1, the values

    With [D_h >= m], hard heads and the values [W^(h) = W_{f(h)}], placed at any [m] outputs [g],
    these outputs are the convolution at an interior query. *)
Theorem lemma_1_outputs N Din Dh Dout m S Delta (f : 'I_N -> shift) a
    (W : shift -> 'M[F]_(Din, m)) (V : 'I_N -> 'M_(Din, m)) b (g : 'I_m -> 'I_Dout) X q o :
  (forall h, V h = W (f h)) -> (m <= Dh)%N -> injective g -> uniq S ->
  perm_eq (codom f) Delta -> interior S Delta q ->
  (forall h k, k \in S -> a h q k = (k - q == f h)%:R) ->
  mhsa S a (wide_values Dh V) (wide_out F N Dh g) (b *m select F g) X q 0 (g o) =
  conv Delta W b X q 0 o.
Proof.
move=> V_W mDh g_inj S_uniq f_Delta qS hard; rewrite (@eq_13 _ _ _ _ _ f) // => [|h]; last first.
  by apply: qS; rewrite -(perm_mem f_Delta) codom_f.
rewrite -[RHS](mulmx_select _ 0 o g_inj) /conv (sum_heads _ f_Delta) mulmxDl mulmx_suml.
congr (fun_of_matrix (_ + _) 0 _); apply: eq_bigr => h _.
by rewrite value_matrix_wide // V_W mulmxA.
Qed.

Lemma select_id m : select F (id : 'I_m -> 'I_m) = 1%:M.
Proof. by apply/matrixP=> i j; rewrite !mxE. Qed.

(** ** Lemma 1

    Let [f] number the shifts [Delta] of a kernel by the heads (a bijection); let [D_h >= D_out].
    If, on every image and from every interior query, each head attends only to the pixel at its
    shift [f h], then for every kernel [W] over [Delta] and bias [b] the layer has values with which
    it is the convolution, for every image and every interior query. The attention [a X h q k] may
    depend on the image [X]. *)
Theorem lemma_1 N Din Dh Dout S Delta (f : 'I_N -> shift) (a : image F Din -> 'I_N -> _) :
  (Dout <= Dh)%N -> uniq S -> perm_eq (codom f) Delta ->
  (forall X h q k, interior S Delta q -> k \in S -> a X h q k = (k - q == f h)%:R) ->
  forall (W : shift -> 'M_(Din, Dout)) b,
  exists (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout,
  forall X q, interior S Delta q -> mhsa S (a X) Wval Wout bout X q = conv Delta W b X q.
Proof.
move=> dims S_uniq f_Delta hard W b.
exists (wide_values Dh (fun h => W (f h))), (wide_out F N Dh id), (b *m select F id) => X q qS.
by apply/rowP=> o; apply: (@lemma_1_outputs _ _ _ _ _ _ Delta f _ W _ b id) => // h k; apply: hard.
Qed.

(** ** Lemma 1 on padded images: pad, attend, crop

    Pad [H x Wd] images as wide as the [K1 x K2] kernel reaches (this is torch's padding "same"),
    with anything: [X] is the padded image.  Attend on it as in Lemma 1; keep the queries of the image.
    The result is the convolution of the padded image at every pixel, those at the border
    included. *)
Theorem lemma_1_padded N Din Dh Dout H Wd K1 K2 (f : 'I_N -> shift)
    (a : image F Din -> 'I_N -> _) :
  let Delta := kernel_shifts K1 K2 in
  let S := padded_grid K1.-1./2 K1./2 K2.-1./2 K2./2 H Wd in
  (Dout <= Dh)%N -> perm_eq (codom f) Delta ->
  (forall X h q k, interior S Delta q -> k \in S -> a X h q k = (k - q == f h)%:R) ->
  forall (W : shift -> 'M_(Din, Dout)) b,
  exists (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout,
  forall X q, q \in grid H Wd -> mhsa S (a X) Wval Wout bout X q = conv Delta W b X q.
Proof.
move=> Delta S dims f_Delta hard W b.
have [Wval [Wout [bout same]]] := lemma_1 dims (uniq_rectangle _ _ _) f_Delta hard W b.
by exists Wval, Wout, bout => X q qI; apply/same/interior_padded.
Qed.

(** ** Lemma 1 as printed, for symmetric shifts

    With [f h = q - k], as (10) prints it, Lemma 1 still holds where the shifts [Delta] are
    symmetric, as those of an odd kernel are: some values exist.  They are not [W^(h) = W_{f(h)}]
    but [W^(h) = W_{-f(h)}]. *)
Theorem lemma_1_printed_symmetric N Din Dh Dout S Delta (f : 'I_N -> shift)
    (a : image F Din -> 'I_N -> _) :
  (Dout <= Dh)%N -> uniq S -> perm_eq (codom f) Delta -> perm_eq [seq - d | d <- Delta] Delta ->
  (forall X h q k, interior S Delta q -> k \in S -> a X h q k = (q - k == f h)%:R) ->
  forall (W : shift -> 'M_(Din, Dout)) b,
  exists (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout,
  forall X q, interior S Delta q -> mhsa S (a X) Wval Wout bout X q = conv Delta W b X q.
Proof.
move=> dims S_uniq f_Delta sym hard; apply: (lemma_1 (f := fun h => - f h)) => //.
  by apply: perm_trans sym; rewrite /codom /image_mem (map_comp -%R f) perm_map.
by move=> X h q k qS kS; rewrite hard // -opprB eqr_oppLR.
Qed.

(** ** The sign printed in (10)

    With [f h = q - k], as the paper prints it, and the values [W^(h) = W_{f(h)}], the layer is
    another convolution: with the mirrored kernel, at the queries that are interior for it. *)
Theorem lemma_1_printed_sign N Din Dh Dout S Delta (f : 'I_N -> shift)
    (a : image F Din -> 'I_N -> _) W b :
  (Dout <= Dh)%N -> uniq S -> perm_eq (codom f) Delta ->
  let mirrored := [seq - delta | delta <- Delta] in
  (forall X h q k, interior S mirrored q -> k \in S -> a X h q k = (q - k == f h)%:R) ->
  forall X q, interior S mirrored q ->
  mhsa S (a X) (wide_values Dh (fun h => W (f h))) (wide_out F N Dh id) b X q =
  conv mirrored (fun delta => W (- delta) : 'M_(Din, Dout)) b X q.
Proof.
move=> dims S_uniq f_Delta mirrored hard X q qS; apply/rowP=> o.
have f_mirrored : perm_eq (codom (fun h => - f h)) mirrored.
  by rewrite /codom /image_mem (map_comp -%R f) perm_map.
rewrite -{1}[b]mulmx1 -select_id.
apply: (@lemma_1_outputs N Din Dh Dout Dout S mirrored (fun h => - f h) (a X)
  (fun delta => W (- delta)) (fun h => W (f h)) b id) => //.
  by move=> h; rewrite opprK.
by move=> h k kS; rewrite hard // -opprB eqr_oppLR.
Qed.

(** Refuted: that (10) as printed gives the convolution with the values [W^(h) = W_{f(h)}] of the
    paper's proof, already for [3 x 3] kernels and images.  Other values do: the paper's claim that
    some exist is [lemma_1_printed_symmetric]. *)
Theorem lemma_1_printed_sign_refuted :
  let Delta := kernel_shifts 3 3 in
  ~ (forall (f : 'I_9 -> shift) (a : image F 1 -> 'I_9 -> _)
       (W : shift -> 'M_(1, 1)) b,
     perm_eq (codom f) Delta ->
     (forall X h q k, interior (grid 3 3) Delta q -> k \in grid 3 3 ->
        a X h q k = (q - k == f h)%:R) ->
     forall X q, interior (grid 3 3) Delta q ->
     mhsa (grid 3 3) (a X) (wide_values 1 (fun h => W (f h))) (wide_out F 9 1 id) b X q =
     conv Delta W b X q).
Proof.
move=> Delta printed.
pose f (h : 'I_9) := Delta`_h; pose d : shift := (0, 1); pose q : pixel := (1, 1).
have f_Delta : perm_eq (codom f) Delta by rewrite [codom f](codom_nth (Delta := Delta)).
have symmetric p : interior (grid 3 3) Delta p <-> interior (grid 3 3) [seq - e | e <- Delta] p.
  have same : perm_eq Delta [seq - e | e <- Delta] by vm_compute.
  by split=> pS e eD; apply: pS; rewrite ?(perm_mem same) // -(perm_mem same).
have qS : interior (grid 3 3) Delta q.
  by apply/allP; vm_compute.
pose X k : 'rV[F]_1 := (k == q + d)%:R%:M.
pose a (_ : image F 1) h q k : F := (q - k == f h)%:R.
pose W (e : shift) : 'M[F]_1 := (e == d)%:R *: 1%:M.
have := printed f a W 0 f_Delta (fun _ _ _ _ _ _ => erefl) X q qS.
rewrite (@lemma_1_printed_sign _ _ _ _ _ Delta f a W) ?uniq_rectangle //; last exact/symmetric.
rewrite conv_single ?mulmx1 /conv ?addr0; [|by vm_compute..].
rewrite big1 => [|e _]; last first.
  rewrite /W eqr_oppLR; case: eqP => [->|_]; last by rewrite scale0r mulmx0.
  by rewrite /X (_ : (q - d == q + d) = false) // mul_scalar_mx mulr0n scale0r.
by rewrite /X eqxx => /rowP/(_ 0)/eqP; rewrite !mxE eq_sym oner_eq0.
Qed.

(** Refuted: (10) at a query whose wanted pixel is outside; probabilities sum to one. *)
Theorem eq_10_border_refuted S (p : pixel -> F) q delta :
  \sum_(k <- S) p k = 1 -> q + delta \notin S ->
  ~ (forall k, k \in S -> p k = (k - q == delta)%:R).
Proof.
move=> sum1 /negP out hard; have /eqP := sum1; apply/negP.
rewrite big_seq big1 1?eq_sym ?oner_neq0 // => k kS; rewrite hard // subr_eq addrC.
by case: eqP kS => // ->.
Qed.

(** Refuted: Lemma 1 with the border included and zeros around the image.  Let a shift [d] of the
    kernel leave the image from one query and not from another.  Then there is one kernel that no
    attention reaches at all queries, though its probabilities, which sum to one, may be made for
    this kernel and for each image: attention makes an image of one colour one of one colour, the
    convolution does not. *)
Theorem lemma_1_border_refuted N Din Dh Dout S Delta d q0 q1 :
  uniq Delta -> d \in Delta -> q0 \in S -> q1 \in S -> q0 + d \notin S -> q1 + d \in S ->
  exists W b, forall (a : image F Din.+1 -> 'I_N -> pixel -> pixel -> F)
    (Wval : 'I_N -> 'M_(Din.+1, Dh)) (Wout : 'M_(N * Dh, Dout.+1)) bout,
  (forall X h q, q \in S -> \sum_(k <- S) a X h q k = 1) ->
  ~ (forall X q, q \in S ->
     mhsa S (a X) Wval Wout bout X q = conv Delta W b (zero_pad S X) q).
Proof.
move=> Delta_uniq dD q0S q1S out0 in1.
exists (fun e => (e == d)%:R *: const_mx 1), 0 => a Wval Wout bout sum1 same.
pose X (k : pixel) : 'rV[F]_Din.+1 := delta_mx 0 0.
have flat : mhsa S (a X) Wval Wout bout X q0 = mhsa S (a X) Wval Wout bout X q1.
  by rewrite !eq_12; congr (_ + _); apply: eq_bigr => h _; rewrite -!scaler_suml !sum1.
move: flat; rewrite !same // !conv_single // /zero_pad in1 (negPf out0) mul0mx -rowE.
by move=> /rowP/(_ 0)/eqP; rewrite !mxE eq_sym oner_eq0.
Qed.
End Lemma1.
